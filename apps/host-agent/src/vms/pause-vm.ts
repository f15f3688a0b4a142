/** Running -> paused: everything flushed to disk, then its VMM is ended. What fails before that leaves it running. */

import { flushFile } from '../vmm/sparse-copy.ts';
import { requireRoomFor } from './capture.ts';
import { endMachine, type Machine } from './machine.ts';
import { requireOwnDisk } from './own-disk.ts';
import { digestPaused, discardPaused, savePaused } from './paused-machine.ts';
import { goOn } from './stand-still.ts';
import type { VmCore } from './vm-core.ts';

export async function pauseVm(core: VmCore): Promise<void> {
  if (core.state === 'paused') return;
  const machine = core.runningMachine();
  await requireRoomFor(core.host, machine, { memory: true, disk: false });
  const pausedAtMs = Date.now();
  core.become('pausing');
  core.standStill();
  try {
    await machine.vmm.pause(core.stopping.signal);
    await savePaused(machine.vmm, machine.directory, core.stopping.signal);
    // After its size was written down, with which it will be resumed or not at all.
    await requireOwnDisk(core);
    // The guest has acknowledged nothing since it was stopped that is not in these files.
    await core.execs.flush();
    await flushFile(core.host.vmsDirectory);
    core.stopping.signal.throwIfAborted();
    if (core.state !== 'pausing') throw core.lost();
    core.letGo();
    await core.save({ state: 'paused', paused_at_ms: pausedAtMs });
  } catch (error) {
    await runOn(core, machine, pausedAtMs);
    throw error;
  }
  try {
    await endMachine(machine);
    await core.disconnect();
  } finally {
    core.become('paused');
  }
}

async function runOn(core: VmCore, machine: Machine, pausedAtMs: number): Promise<void> {
  if (core.machine === undefined) core.hold(machine);
  try {
    await goOn(machine.vmm, core.ending.signal);
  } catch (error) {
    await core.die(error instanceof Error ? error.message : String(error));
  }
  if (core.state === 'pausing') core.become('running');
  core.goOn(Date.now() - pausedAtMs);
  await discardPaused(machine.directory);
}

/** Never rejects: a digest that could not be computed is not there, and its file is known by its stamp. */
export async function digestInBackground(core: VmCore, signal: AbortSignal): Promise<void> {
  try {
    await digestPaused(core.machineDirectory, signal);
  } catch (error) {
    if (!signal.aborted) core.log.error({ err: error }, 'digests of a paused VM not computed');
  }
}
