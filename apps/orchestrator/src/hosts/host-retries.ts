/** Calls that may be repeated, made until their host answers. */
import { sleep } from '@fuse/runtime';
import { isHostUnreachable } from './host-transport.ts';

const LOOK_AGAIN_MS = 250;

/** A host agent that restarts keeps its VMs and snapshots: asking again finds what was being made. Gives up `retryMs` after the first one that failed, however long that one had waited. */
export async function persistently<T>(retryMs: number, call: () => Promise<T>, signal?: AbortSignal): Promise<T> {
  let giveUpAt: number | undefined;
  for (;;) {
    try {
      return await call();
    } catch (error) {
      giveUpAt ??= performance.now() + retryMs;
      if (!isHostUnreachable(error) || performance.now() > giveUpAt) throw error;
      await sleep(LOOK_AGAIN_MS, signal);
    }
  }
}
