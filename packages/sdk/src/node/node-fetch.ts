import type { Fetch } from '../transport.ts';

/**
 * Node's own fetch gives up on an answer whose head takes more than five minutes, and an exec may take ten. This one leaves time limits to
 * `timeoutMs` and to signals.
 */
export function nodeFetch(): Fetch {
  let loading: Promise<Fetch> | undefined;
  return async (url, init) => {
    loading ??= load();
    return (await loading)(url, init);
  };
}

/** Loaded with the first call: it takes as long as most commands of a shell. */
async function load(): Promise<Fetch> {
  const { Agent, fetch: undiciFetch } = await import('undici');
  const dispatcher = new Agent({ headersTimeout: 0, bodyTimeout: 0 });
  const fetch = undiciFetch as unknown as (url: URL, init: object) => Promise<Response>; // undici's types of Response are its own
  return (url, init) => fetch(url, { ...init, dispatcher });
}
