// Asks for the token. It is kept for this tab only.
import { useState } from 'preact/hooks';
import { ApiError, api, token } from '../api';

export function Login({ onDone }: { onDone: () => void }) {
  const [value, setValue] = useState('');
  const [error, setError] = useState<string>();
  const [isBusy, setBusy] = useState(false);
  const enter = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    token.set(value.trim());
    try {
      await api.overview();
      onDone();
    } catch (caught) {
      const refused = caught instanceof ApiError && (caught.status === 401 || caught.status === 403);
      if (refused) token.forget();
      // A coordinator that cannot answer yet has at least taken the token.
      if (!refused && caught instanceof ApiError && caught.status !== 0) return onDone();
      setError(caught instanceof ApiError && caught.status === 401 ? 'This coordinator does not know that token.' : (caught as Error).message);
    }
    setBusy(false);
    return undefined;
  };
  return (
    <main class="login">
      <form class="card" onSubmit={enter}>
        <img src="/icon.svg" alt="" width="40" height="40" />
        <h1>Capstan</h1>
        <label for="token">This coordinator asks for a token</label>
        <input
          id="token"
          type="password"
          autocomplete="off"
          autofocus
          required
          value={value}
          onInput={(event) => setValue(event.currentTarget.value)}
          aria-describedby="token-hint"
        />
        <p id="token-hint" class="soft">
          <code>capstan up</code> prints an address that has it. Otherwise ask whoever keeps the file of{' '}
          <code>--auth-tokens</code>. It stays in this tab.
        </p>
        {error && (
          <p class="notice is-bad" role="alert">
            {error}
          </p>
        )}
        <button class="button is-main" disabled={isBusy || value.trim() === ''}>
          Enter
        </button>
      </form>
    </main>
  );
}
