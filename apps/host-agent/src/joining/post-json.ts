/** One request to the orchestrator. Not fetch: that takes no certificate authority. */
import http from 'node:http';
import https from 'node:https';
import { text } from 'node:stream/consumers';

const DEADLINE_MS = 30_000;

export interface Post {
  bearer: string;
  ca: string | undefined;
  body: unknown;
  signal: AbortSignal;
}

/** `body`: undefined when the answer is no JSON. */
export async function postJson(
  url: string,
  { bearer, ca, body, signal }: Post,
): Promise<{ status: number; body: unknown }> {
  const bytes = Buffer.from(JSON.stringify(body));
  const deadline = AbortSignal.any([signal, AbortSignal.timeout(DEADLINE_MS)]);
  const headers = {
    authorization: `Bearer ${bearer}`,
    'content-type': 'application/json',
    'content-length': bytes.length,
  };
  const answer = await new Promise<http.IncomingMessage>((resolve, reject) => {
    const options = { method: 'POST', headers, agent: false, signal: deadline } as const;
    const request = url.startsWith('https:')
      ? https.request(url, { ...options, ...(ca === undefined ? {} : { ca }) })
      : http.request(url, options);
    request.once('response', resolve).on('error', reject).end(bytes);
  });
  return { status: answer.statusCode ?? 0, body: parsed(await text(answer)) };
}

function parsed(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}
