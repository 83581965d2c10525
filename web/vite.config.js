// The dashboard's build: one page, one script, one style sheet, in build/web/dist. `npm run dev` serves the sources, with
// the API of a Capstan that runs at CAPSTAN_HTTP (else where `capstan up` puts it).
import { defineConfig } from 'vite';

const api = process.env.CAPSTAN_HTTP ?? 'http://127.0.0.1:7480';

export default defineConfig({
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  build: {
    outDir: '../build/web/dist',
    emptyOutDir: true,
    target: 'es2022',
    modulePreload: false,
    assetsInlineLimit: 0,
    reportCompressedSize: false,
  },
  server: {
    proxy: { '/v1': { target: api, changeOrigin: true, headers: { origin: api } }, '/metrics': { target: api, changeOrigin: true } },
  },
});
