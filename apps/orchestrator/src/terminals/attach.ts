/**
 * A terminal in an environment (contract's attach.ts). Its shell is an exec like any other; an attach is a viewer of it. Without a session, which only the raw protocol
 * has, the shell is the connection's own and ends with it.
 */
import {
  AppError,
  ATTACH_PROTOCOL,
  type AttachOptions,
  encodeFrame,
  type Frame,
  frameType,
  MAX_SCROLLBACK_BYTES,
} from '@fuse/contract';
import type { StartExec } from '@fuse/host-protocol';
import { newId } from '@fuse/runtime';
import { noteLoss } from '../environments/note-loss.ts';
import { ExecLink } from '../execs/connect-link.ts';
import {
  asExecFrame,
  clientFrames,
  execFrames,
  exitOf,
  jsonFrame,
  type RelayRules,
  relay,
} from '../execs/connect-relay.ts';
import { type ConnectParts, startForConnection } from '../execs/connect-start.ts';
import { inUse } from '../execs/in-use.ts';
import { persistently } from '../hosts/host-retries.ts';
import { done } from '../http/endings.ts';
import type { Ending } from '../http/peer.ts';
import type { UpgradeRequest } from '../http/upgrade-route.ts';
import { attachOptions, requireTty } from './attach-options.ts';

/** What is printed before anybody looks waits for so long rather than that it is lost. */
const UNTIL_FOLLOWED_MS = 10_000;
/** A shell of a connection's own outlives an orchestrator that died by so long; above what its links take to come back to a host agent. */
const UNWATCHED_MS = 90_000;

export async function attach(parts: ConnectParts, request: UpgradeRequest): Promise<Ending> {
  const { context, environments } = parts;
  const { query, protocol, signal, log } = request;
  requireTty(query);
  const options = attachOptions(query);
  const isRaw = protocol === ATTACH_PROTOCOL;
  const isOwn = isRaw && options.session === undefined;
  const execId = options.session ?? newId('tty');
  const row = await environments.find(request.caller.tenantId, request.params.id ?? '');
  using _use = inUse(context.db.query, row);
  let link: ExecLink | undefined;
  let isOver = false;
  try {
    const started = await startForConnection(parts, row, { execId, command: shellOf(options, isOwn), signal });
    if (started.exec.tty === undefined) throw hasNoTerminal(execId);
    link = await ExecLink.open(context, started.row, {
      execId,
      from: isOwn ? { offset: 0 } : { tail: options.scrollbackBytes },
      size: options.size,
      signal,
    });
    const peer = request.accept();
    if (!isOwn) await peer.send(jsonFrame(frameType.open, link.opened));
    const rules = isOwn ? ownShell : { takes: execFrames, shown: isRaw ? withPlainExit : asExecFrame };
    const outcome = await relay(peer, clientFrames(peer), link, rules);
    isOver = outcome === 'exited';
    return done(outcome === 'exited' ? 'exited' : 'the client left');
  } catch (error) {
    await noteLoss(context, row, error);
    throw error;
  } finally {
    link?.close();
    if (isOwn && !isOver) {
      const client = await context.hosts.client(row.host_id);
      await persistently(context.hostRetryMs, () => client.killExec(row.vm_id, execId)).catch((error: unknown) =>
        log.warn({ err: error, vm_id: row.vm_id, exec_id: execId }, 'shell of an ended connection not killed'),
      );
    }
  }
}

function shellOf({ cmd, size, user, cwd }: AttachOptions, isOwn: boolean): StartExec {
  return {
    ...(cmd.length === 0 ? { argv: ['$SHELL'], login: true } : { argv: cmd }),
    ...(user === undefined ? {} : { user }),
    ...(cwd === undefined ? {} : { cwd }),
    timeout_ms: 0,
    tty: size,
    stdin_open: true,
    max_log_bytes: MAX_SCROLLBACK_BYTES,
    keep: 'ends',
    hold: { until_followed_ms: UNTIL_FOLLOWED_MS },
    ...(isOwn ? { kill_unwatched_ms: UNWATCHED_MS } : {}),
  };
}

const hasNoTerminal = (execId: string): AppError =>
  new AppError('conflict', `exec ${execId} has no terminal`, {
    details: { reason: 'no_terminal' },
    hint: 'Its output is read with …/log, or …/connect.',
  });

const exitCodeAlone = (frame: Frame): Uint8Array => jsonFrame(frameType.exit, { exit_code: exitOf(frame).exit_code });

/** Published clients know these frames and no others. */
const ownShell: RelayRules = {
  takes: new Set([frameType.stdin, frameType.resize]),
  shown: (frame) => {
    if (frame.type === frameType.exit) return exitCodeAlone(frame);
    return frame.type === frameType.stdout ? encodeFrame(frame.type, frame.payload) : undefined;
  },
};

const withPlainExit = (frame: Frame): Uint8Array =>
  frame.type === frameType.exit ? exitCodeAlone(frame) : encodeFrame(frame.type, frame.payload);
