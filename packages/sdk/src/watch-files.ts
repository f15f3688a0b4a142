/** Events of a path. What happened while a connection was lost is not known: `overflow` says so, and it goes on. */
import { WatchEvent } from '@fuse/contract';
import { CutStreamError, FuseError, isNotFound } from './errors.ts';
import { bodyOf } from './file-reading.ts';
import { jsonLines } from './json-lines.ts';
import { persist } from './persist.ts';
import type { CallOptions } from './run-outputs.ts';
import { STALL_MS, within } from './sleep.ts';
import type { Transport } from './transport.ts';

export interface WatchOptions extends CallOptions {
  recursive?: boolean;
  /** How long to try to watch on after a cut. Default 60 s. */
  patienceMs?: number;
}

export function watchFiles(
  transport: Transport,
  environment: string,
  path: string,
  { recursive, patienceMs, signal }: WatchOptions,
): AsyncGenerator<WatchEvent, void> {
  let watchedBefore = false;

  async function* connection(connected: AbortSignal): AsyncGenerator<WatchEvent, boolean> {
    let response: Response;
    try {
      response = await within(
        STALL_MS,
        transport.open({
          method: 'GET',
          path: `${environment}/files/watch`,
          query: { path, recursive: recursive === true ? '1' : undefined },
          repeat: 'never',
          timeoutMs: null,
          signal: connected,
        }),
      );
    } catch (error) {
      if (!watchedBefore || !isNotFound(error)) throw error;
      yield { type: 'overflow' };
      yield { type: 'removed', path };
      return true;
    }
    let gone = false;
    for await (const line of jsonLines(bodyOf(response, 'a watch'), STALL_MS)) {
      const parsed = WatchEvent.safeParse(line);
      if (!parsed.success) throw new FuseError('watch: not an event', { cause: parsed.error });
      const event = parsed.data;
      if (event.type === 'heartbeat') continue;
      if (event.type === 'ready' && watchedBefore) yield { type: 'overflow' };
      else yield event;
      if (event.type === 'ready') watchedBefore = true;
      if (event.type === 'removed' && (event.path === undefined || event.path === path)) gone = true;
    }
    return gone;
  }

  return persist(connection, {
    random: transport.config.random,
    signal,
    patienceMs,
    onCut: (cause) => new CutStreamError(path, undefined, cause),
  });
}
