/** Notices a guest that no longer answers while its VMM runs on. */
import { sleep } from '@fuse/runtime';
import type { Guest } from '../guest/guest.ts';

const INTERVAL_MS = 10_000;
const RETRY_MS = 1_000;
/** Longer than a guest that swaps or is starved of CPU stays silent, short of the 30 s within which a VM's end must show. */
const SILENCE_MS = 25_000;

/** Resolves when the signal aborts; rejects when nothing was heard for too long. */
export async function watchGuest(guest: Guest, signal: AbortSignal): Promise<void> {
  let heardAtMs = performance.now();
  let pauseMs = INTERVAL_MS;
  for (;;) {
    await sleep(pauseMs, signal).catch(() => {});
    if (signal.aborted) return;
    const leftMs = heardAtMs + SILENCE_MS - performance.now();
    try {
      await guest.health(AbortSignal.timeout(Math.max(Math.round(leftMs), RETRY_MS)));
      heardAtMs = performance.now();
      pauseMs = INTERVAL_MS;
    } catch (cause) {
      const silentMs = performance.now() - heardAtMs;
      if (silentMs >= SILENCE_MS)
        throw new Error(`its guest has not answered for ${Math.round(silentMs / 1_000)} s`, { cause });
      pauseMs = RETRY_MS;
    }
  }
}
