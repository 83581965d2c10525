// build.js - makes dist/: the sources compiled, and the protocol beside them; and takes the licence along. `npm pack` calls
// it, too. Neither file is in the repository twice.
import { execFileSync } from 'node:child_process';
import { copyFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

const here = (name) => fileURLToPath(new URL(name, import.meta.url));

rmSync(here('dist'), { recursive: true, force: true });
const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc');
execFileSync(process.execPath, [tsc, '-p', here('tsconfig.json')], { stdio: 'inherit' });
copyFileSync(here('../../proto/capstan.proto'), here('dist/capstan.proto'));
copyFileSync(here('../../LICENSE'), here('LICENSE'));
