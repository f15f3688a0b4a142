/** Signals, sizes and processes: small requests that mean the same when they are made twice. */
import { ListProcesses, type TerminalSize } from '@fuse/contract';
import type { GuestSignal } from '@fuse/host-protocol';
import { z } from 'zod';
import { callJson } from './call.ts';
import type { GuestChannel } from './channel.ts';

const ANSWER_MS = 30_000;
const MAX_PROCESSES = 4_096;

/** Its strings are the guest's. */
const GuestProcesses = ListProcesses.extend({
  processes: z
    .array(
      ListProcesses.shape.processes.element.extend({
        command: z.array(z.string().max(131_072)).max(4_096),
        user: z.string().max(256),
        state: z.string().max(8),
        started_at: z.string().max(64),
        exec_id: z.string().max(256).optional(),
      }),
    )
    .max(MAX_PROCESSES),
});

const execPath = (id: string, verb: string): string => `/v1/execs/${encodeURIComponent(id)}/${verb}`;

export async function signalExec(
  channel: GuestChannel,
  id: string,
  body: GuestSignal,
  signal?: AbortSignal,
): Promise<void> {
  const call = { method: 'POST', path: execPath(id, 'signal'), what: 'a signal', body } as const;
  await callJson(channel, { ...call, deadlineMs: ANSWER_MS, attempts: 1, signal });
}

export async function resizeExec(
  channel: GuestChannel,
  id: string,
  body: TerminalSize,
  signal?: AbortSignal,
): Promise<void> {
  const call = { method: 'POST', path: execPath(id, 'resize'), what: 'the size of a terminal', body } as const;
  await callJson(channel, { ...call, deadlineMs: ANSWER_MS, signal });
}

export function listProcesses(channel: GuestChannel, signal?: AbortSignal): Promise<ListProcesses> {
  const call = { method: 'GET', path: '/v1/processes', what: 'a list of processes', schema: GuestProcesses } as const;
  return callJson(channel, { ...call, deadlineMs: ANSWER_MS, signal });
}

export async function signalProcess(
  channel: GuestChannel,
  pid: number,
  body: GuestSignal,
  signal?: AbortSignal,
): Promise<void> {
  const call = { method: 'POST', path: `/v1/processes/${pid}/signal`, what: 'a signal', body } as const;
  await callJson(channel, { ...call, deadlineMs: ANSWER_MS, attempts: 1, signal });
}
