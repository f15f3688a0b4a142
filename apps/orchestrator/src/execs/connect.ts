/**
 * `…/execs/{exec_id}/connect`: a WebSocket to a command, both ways (contract's exec.ts). One that is not there yet is started by the client's first frame, so that a
 * client which comes back after a cut sends the same again.
 */
import { AppError, ExecId, ExecRequest, type Frame, FrameError, frameType, invalidField } from '@fuse/contract';
import { withDeadline } from '@fuse/runtime';
import { z } from 'zod';
import type { EnvironmentRow } from '../db/schema.ts';
import { noteLoss } from '../environments/note-loss.ts';
import type { LogStart } from '../hosts/host-execs.ts';
import { persistently } from '../hosts/host-retries.ts';
import { done } from '../http/endings.ts';
import type { Ending, Peer } from '../http/peer.ts';
import type { UpgradeRequest } from '../http/upgrade-route.ts';
import { parseBody } from '../http/validation.ts';
import { ExecLink } from './connect-link.ts';
import { asExecFrame, clientFrames, execFrames, jsonFrame, jsonOrUndefined, relay } from './connect-relay.ts';
import { type ConnectParts, startForConnection } from './connect-start.ts';
import { toStartExec } from './exec-spec.ts';
import { inUse } from './in-use.ts';

const SPEC_MS = 15_000;

const Offset = z.coerce.number().int().nonnegative();

export async function connect(parts: ConnectParts, request: UpgradeRequest): Promise<Ending> {
  const { context, environments } = parts;
  const { params, query, signal } = request;
  const execId = execIdOf(params.exec_id ?? '');
  const from = startOf(query);
  const found = await environments.find(request.caller.tenantId, params.id ?? '');
  let row = await environments.ready(found, signal);
  using _use = inUse(context.db.query, row);
  let link: ExecLink | undefined;
  let peer: Peer | undefined;
  try {
    let frames: AsyncGenerator<Frame> | undefined;
    if (!(await isThere(parts, row, execId, signal))) {
      peer = request.accept();
      frames = clientFrames(peer);
      const command = toStartExec(await firstSpec(frames, execId, signal), 'stream');
      ({ row } = await startForConnection(parts, row, { execId, command, signal }));
    }
    link = await ExecLink.open(context, row, { execId, from, signal });
    peer ??= request.accept();
    await peer.send(jsonFrame(frameType.open, link.opened));
    const rules = { takes: execFrames, shown: asExecFrame };
    const outcome = await relay(peer, frames ?? clientFrames(peer), link, rules);
    return done(outcome === 'exited' ? 'exited' : 'the client left');
  } catch (error) {
    await noteLoss(context, row, error);
    throw error;
  } finally {
    link?.close();
  }
}

export function execIdOf(text: string): string {
  const parsed = ExecId.safeParse(text);
  if (!parsed.success) throw invalidField('exec_id', parsed.error.issues[0]?.message ?? 'invalid');
  return parsed.data;
}

function startOf(query: URLSearchParams): LogStart {
  const name = query.has('tail') ? 'tail' : 'offset';
  const parsed = Offset.safeParse(query.get(name) ?? '0');
  if (!parsed.success) throw invalidField(name, 'must be a whole number of bytes');
  return name === 'tail' ? { tail: parsed.data } : { offset: parsed.data };
}

async function isThere(
  { context }: ConnectParts,
  row: EnvironmentRow,
  execId: string,
  signal: AbortSignal,
): Promise<boolean> {
  const client = await context.hosts.client(row.host_id);
  try {
    await persistently(context.hostRetryMs, () => client.exec(row.vm_id, execId, 0, signal), signal);
    return true;
  } catch (error) {
    if (error instanceof AppError && error.code === 'not_found') return false;
    throw error;
  }
}

async function firstSpec(frames: AsyncGenerator<Frame>, execId: string, signal: AbortSignal): Promise<ExecRequest> {
  const first = await withDeadline(SPEC_MS, 'the first frame', () => frames.next(), signal).catch((error: unknown) => {
    signal.throwIfAborted();
    throw new AppError('not_found', `exec ${execId} not found`, {
      hint: 'To start it, send a spec frame first.',
      cause: error,
    });
  });
  if (first.done) throw new FrameError('the client sent nothing');
  if (first.value.type !== frameType.spec)
    throw new AppError('not_found', `exec ${execId} not found`, { hint: 'To start it, send a spec frame first.' });
  const request = parseBody(ExecRequest, jsonOrUndefined(first.value));
  if (request.id !== undefined && request.id !== execId) throw invalidField('id', `must be ${execId}, as in the path`);
  return request;
}
