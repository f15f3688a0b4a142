/**
 * Bodies are JSON whatever their Content-Type says, also without one; none at all is `undefined`. A route's `bodyLimit` bounds the bytes,
 * BODY_DEADLINE_MS the time.
 */

import type { IncomingMessage } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { AppError, invalidField } from '@fuse/contract';
import type { FastifyRequest } from 'fastify';
import type { App } from './http-server.ts';
import { bodyTimedOut } from './incoming-body.ts';

const BODY_DEADLINE_MS = 15_000;
/** How long an oversized body is read and dropped so that the client, still sending, gets to read the refusal. */
const DISCARD_MS = 1_000;

/** As the framework reads one; it refuses what it cannot read before any parser of ours is asked. */
const READABLE_TYPE = /^[\w!#$%&'*+.^`|~-]+\/[\w!#$%&'*+.^`|~-]+\s*(;|$)/;

export function installJsonBodies(app: App, deadlineMs = BODY_DEADLINE_MS): void {
  app.addHook('onRequest', async ({ raw }) => {
    if (!READABLE_TYPE.test(raw.headers['content-type'] ?? '')) delete raw.headers['content-type'];
  });
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', async (request: FastifyRequest, payload: IncomingMessage) =>
    parseJson(await readBody(payload, { limitBytes: request.routeOptions.bodyLimit ?? 0, deadlineMs })),
  );
}

/** For a plugin whose routes stream their body: `request.body` is the raw stream there. Its routes bound it themselves. */
export function useRawBodies(app: App): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', async (_request: FastifyRequest, payload: IncomingMessage) => payload);
}

interface BodyBounds {
  limitBytes: number;
  deadlineMs: number;
}

async function readBody(payload: IncomingMessage, bounds: BodyBounds): Promise<Buffer> {
  const { limitBytes } = bounds;
  const declared = Number(payload.headers['content-length'] ?? 0);
  if (declared > limitBytes) return refuseOversized(payload, limitBytes);
  const body = await bodyUpTo(payload, bounds);
  return body ?? refuseOversized(payload, limitBytes);
}

/** Undefined, and paused, when it is longer. By events: a loop over so few chunks takes longer than all else that a short request needs. */
function bodyUpTo(payload: IncomingMessage, { limitBytes, deadlineMs }: BodyBounds): Promise<Buffer | undefined> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    const timer = setTimeout(() => {
      leave();
      reject(bodyTimedOut(`not all of it within ${deadlineMs / 1_000} s`));
    }, deadlineMs);
    const leave = () => {
      clearTimeout(timer);
      payload.off('data', onData).off('end', onEnd).off('error', onCut).off('close', onCut);
    };
    const onData = (chunk: Buffer) => {
      size += chunk.length;
      if (size <= limitBytes) return void chunks.push(chunk);
      leave();
      payload.pause();
      resolve(undefined);
    };
    const onEnd = () => {
      leave();
      resolve(Buffer.concat(chunks));
    };
    const onCut = (cause?: unknown) => {
      leave();
      reject(new AppError('invalid_argument', 'the request body was cut', { cause }));
    };
    payload.on('data', onData).once('end', onEnd).once('error', onCut).once('close', onCut);
  });
}

/** Throws 413 once the client had time to stop sending. */
export async function refuseOversized(payload: IncomingMessage, limitBytes: number): Promise<never> {
  await discardBody(payload);
  throw new AppError('payload_too_large', `request body exceeds the ${limitBytes} byte limit for this endpoint`);
}

/** Before a refusal while the client may still be sending: it reads none before it is done, or had time to stop. */
export async function discardBody(payload: IncomingMessage): Promise<void> {
  if (payload.readableEnded || payload.destroyed) return;
  payload.on('error', () => {});
  payload.resume();
  const stop = new AbortController();
  payload.once('close', () => stop.abort());
  payload.once('end', () => stop.abort());
  await delay(DISCARD_MS, undefined, { signal: stop.signal }).catch(() => {});
}

export function parseJson(bytes: Uint8Array): unknown {
  if (bytes.length === 0) return undefined;
  let text: string;
  let value: unknown;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    value = JSON.parse(text);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new AppError('invalid_argument', `invalid JSON body: ${why}`, { hint: 'Send one JSON object in UTF-8.' });
  }
  // Only an escape can make one; text with lone surrogates cannot be stored or sent on.
  refuseUnfit(value, [], /\\ud[89a-f]/i.test(text));
  return value;
}

/** Far more than any body of ours has; whoever walks one may do so recursively. */
const MAX_DEPTH = 64;

function refuseUnfit(value: unknown, path: string[], mayHoldSurrogates: boolean): void {
  if (mayHoldSurrogates && typeof value === 'string' && /\p{Surrogate}/u.test(value))
    throw invalidField(path.join('.') || '(body)', 'holds half a surrogate pair');
  if (typeof value !== 'object' || value === null) return;
  if (path.length >= MAX_DEPTH) throw invalidField('(body)', `is nested deeper than ${MAX_DEPTH} levels`);
  for (const [key, child] of Object.entries(value)) {
    if (mayHoldSurrogates) refuseUnfit(key, [...path, '(name)'], true);
    if (typeof child === 'string' && !mayHoldSurrogates) continue;
    refuseUnfit(child, [...path, key], mayHoldSurrogates);
  }
}
