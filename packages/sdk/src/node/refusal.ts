import type { IncomingMessage } from 'node:http';
import { apiErrorFrom } from '../errors.ts';

const MAX_REFUSAL_BYTES = 65_536;

/** What a request for an upgrade was answered with in its place. */
export async function refusal(response: IncomingMessage): Promise<Error> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size <= MAX_REFUSAL_BYTES) chunks.push(chunk);
  }
  const headers = new Headers();
  for (const [name, value] of Object.entries(response.headers)) headers.set(name, String(value));
  const head = new Response(null, { status: response.statusCode ?? 502, headers });
  return apiErrorFrom(head, Buffer.concat(chunks).toString(), Date.now());
}
