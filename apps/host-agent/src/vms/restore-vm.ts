/**
 * The VM goes back to a snapshot, under its own id. Everything is prepared aside while it runs on; once its VMM is ended there is no way back, and what
 * fails leaves it dead.
 */
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { AppError } from '@fuse/contract';
import type { RestoreVm } from '@fuse/host-protocol';
import { requireFreeDisk } from './disk-full.ts';
import { endMachine, makeNextMachine, removeMachine } from './machine.ts';
import { prepareFromSnapshot } from './snapshot-source.ts';
import { launchMachine, Phases, type PreparedMachine } from './start-machine.ts';
import type { VmCore } from './vm-core.ts';
import { type VmRecord, withoutKeys } from './vm-record.ts';

export async function restoreVm(core: VmCore, request: RestoreVm): Promise<void> {
  if (core.record.restore_id === request.restore_id) return;
  if (!['running', 'paused', 'dead'].includes(core.state)) core.runningMachine();
  const phases = new Phases();
  await requireFreeDisk(core.host.vmsDirectory, core.host.storageReserveBytes);
  const { order, machine: last } = core.record;
  const name = await makeNextMachine(core.directory, last);
  try {
    const directory = join(core.directory, name);
    await using prepared = await prepareFromSnapshot(
      core.host,
      request,
      order,
      directory,
      phases,
      core.stopping.signal,
    );
    core.host.driver.expectStart?.();
    await core.unbury();
    // True, should this process end before it is done.
    const error = `its restore to snapshot ${request.snapshot_id} was cut off`;
    await core.save({ state: 'dead', machine: name, error });
    await replace(core, request, { directory, prepared, phases });
  } finally {
    await removeMachine(core.directory, core.record.machine === name ? last : name);
  }
}

/** Only the VM's own end stops it from here on: it would be dead. */
async function replace(
  core: VmCore,
  { snapshot_id, restore_id }: RestoreVm,
  { directory, prepared, phases }: { directory: string; prepared: PreparedMachine; phases: Phases },
): Promise<void> {
  const { order, generation: previousGeneration } = core.record;
  core.become('resuming');
  core.standStill();
  try {
    await endLast(core, snapshot_id);
    if (prepared.networkCard) core.insertCard();
    else core.removeCard();
    const { memory } = prepared;
    const network = core.networkOrder;
    const start = { order, directory, memory, reason: 'restore', previousGeneration, network } as const;
    const started = await launchMachine(core.host, start, phases, core.ending.signal);
    const running: Partial<VmRecord> = {
      state: 'running',
      generation: started.generation,
      timings: phases.end(),
      restore_id,
      exec_scope: newExecScope(),
      disk_only: prepared.fellBack === true,
      network_card: prepared.networkCard,
      ...(started.slot === undefined ? {} : { slot: started.slot }),
    };
    await core
      .save((record) => ({ ...withoutKeys(record, ['error', 'paused_at_ms']), ...running }))
      .catch(async (error: unknown) => {
        await endMachine(started);
        await core.host.network.detach(core.record.id);
        throw error;
      });
    core.hold(started);
    core.become('running');
    core.goOn(0);
  } catch (error) {
    core.become('dead');
    const why = error instanceof Error ? error.message : String(error);
    await core.die(`it could not be restored to snapshot ${snapshot_id}: ${why}`);
    throw error;
  }
}

async function endLast(core: VmCore, snapshotId: string): Promise<void> {
  const machine = core.letGo();
  await core.execs.lose(new AppError('vm_lost', `the VM was restored to snapshot ${snapshotId}`));
  if (machine !== undefined) await endMachine(machine);
  await core.disconnect();
}

export const newExecScope = (): string => randomBytes(4).toString('hex');
