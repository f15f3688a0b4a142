/** The healthcheck that a guest evaluates by itself. */
import { AppError, type Healthcheck } from '@fuse/contract';
import { GuestHealthcheck } from '@fuse/host-protocol';
import { callJson } from './call.ts';
import type { GuestChannel } from './channel.ts';

const ANSWER_MS = 30_000;
const PATH = '/v1/healthcheck';

export async function putHealthcheck(channel: GuestChannel, body: Healthcheck, signal?: AbortSignal): Promise<void> {
  const call = { method: 'PUT', path: PATH, what: 'a healthcheck', body, deadlineMs: ANSWER_MS, signal } as const;
  await callJson(channel, call);
}

/** Undefined when it has none. */
export async function readHealthcheck(
  channel: GuestChannel,
  signal?: AbortSignal,
): Promise<GuestHealthcheck | undefined> {
  const what = 'the verdict of its healthcheck';
  const call = { method: 'GET', path: PATH, what, schema: GuestHealthcheck, deadlineMs: ANSWER_MS, signal } as const;
  try {
    return await callJson(channel, call);
  } catch (error) {
    if (error instanceof AppError && error.code === 'not_found') return undefined;
    throw error;
  }
}
