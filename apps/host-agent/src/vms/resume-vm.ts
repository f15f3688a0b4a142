/**
 * Paused -> running, on a machine of its own that starts from what was saved. The saved one is left alone until the new one is handed over, so a
 * resume that fails, at whatever point, leaves the VM as it was paused.
 */
import { join } from 'node:path';
import { copyWritableDisk } from '../vmm/machine-disk.ts';
import { requireFreeDisk } from './disk-full.ts';
import { endMachine, makeNextMachine, removeMachine, writableDiskPath } from './machine.ts';
import { verifiedPaused } from './paused-machine.ts';
import { launchMachine, Phases, type StartedMachine } from './start-machine.ts';
import type { VmCore } from './vm-core.ts';
import { withoutKeys } from './vm-record.ts';

export async function resumeVm(core: VmCore): Promise<void> {
  if (core.state === 'running') return;
  if (core.state !== 'paused') core.runningMachine();
  const { signal } = core.stopping;
  const { order, machine: saved, generation: previousGeneration, paused_at_ms } = core.record;
  const phases = new Phases();
  core.become('resuming');
  let name: string | undefined;
  let started: StartedMachine | undefined;
  core.host.driver.expectStart?.();
  try {
    await requireFreeDisk(core.host.vmsDirectory, core.host.storageReserveBytes);
    name = await makeNextMachine(core.directory, saved);
    const directory = join(core.directory, name);
    const from = core.machineDirectory;
    const memory = await phases.timed('memory_ms', () => verifiedPaused(from, signal));
    await phases.timed('disk_ms', () => copyWritableDisk(writableDiskPath(from), writableDiskPath(directory), signal));
    const network = core.networkOrder;
    const start = { order, directory, memory, reason: 'resume', previousGeneration, network } as const;
    started = await launchMachine(core.host, start, phases, signal);
    const { generation, slot } = started;
    const running = {
      ...({ state: 'running', machine: name, generation, timings: phases.end() } as const),
      ...(slot === undefined ? {} : { slot }),
    };
    await core.save((record) => ({ ...withoutKeys(record, ['paused_at_ms', 'error']), ...running }));
  } catch (error) {
    try {
      if (started !== undefined) await endMachine(started);
      await core.disconnect();
      if (name !== undefined) await removeMachine(core.directory, name);
    } finally {
      core.become('paused');
    }
    throw error;
  }
  core.hold(started);
  core.become('running');
  core.goOn(Date.now() - (paused_at_ms ?? Date.now()));
  await removeMachine(core.directory, saved);
}
