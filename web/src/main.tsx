import { render } from 'preact';
import { takeTokenFromAddress } from './api';
import { App } from './app';

takeTokenFromAddress();
render(<App />, document.getElementById('app')!);
