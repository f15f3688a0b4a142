/** The window in which a VM does not run, as short as its work: it goes on at once, whatever became of that. */
import type { Vmm } from '../vmm/driver.ts';

/** The VM could not be made to run on. */
export class StuckError extends Error {
  override readonly name = 'StuckError';
}

/** `giveUp` alone keeps it from going on: the VM is being destroyed. */
export async function whileStopped<T>(
  vmm: Vmm,
  work: () => Promise<T>,
  { signal, giveUp }: { signal: AbortSignal; giveUp: AbortSignal },
): Promise<{ result: T; pauseMs: number }> {
  const from = performance.now();
  let result: T;
  try {
    await vmm.pause(signal);
    result = await work();
  } catch (error) {
    await goOn(vmm, giveUp);
    throw error;
  }
  await goOn(vmm, giveUp);
  return { result, pauseMs: Math.round((performance.now() - from) * 10) / 10 };
}

export async function goOn(vmm: Vmm, giveUp: AbortSignal): Promise<void> {
  try {
    await vmm.resume(giveUp);
  } catch (cause) {
    giveUp.throwIfAborted();
    throw new StuckError('its VMM could not be made to run on', { cause });
  }
}
