/**
 * A VM that an earlier host agent left, at whatever moment that ended. What its record says is what it is: a VM that runs is made to run
 * on, should it have been stopped for a snapshot or a pause; a machine that the record does not name is ended.
 */
import { withDeadline } from '@fuse/runtime';
import type { Vmm } from '../vmm/driver.ts';
import { endLeftVmms, sweepMachines } from './machine.ts';
import { discardPaused } from './paused-machine.ts';
import type { VmCore } from './vm-core.ts';

const ADOPT_DEADLINE_MS = 10_000;

export async function adoptVm(core: VmCore): Promise<void> {
  if (core.record.state === 'running') return adoptRunning(core);
  if (core.record.state === 'paused') core.standStill();
  await core.execs.load();
  if (core.record.state === 'dead') await core.die(core.record.error ?? 'it was dead when the host agent started');
  await endLeftVmms(core.host.driver, core.directory);
  await sweepMachines(core.host.driver, core.directory, core.record.machine);
}

async function adoptRunning(core: VmCore): Promise<void> {
  const { driver, connectGuest } = core.host;
  const { id, slot } = core.record;
  if (core.network !== undefined && slot !== undefined) core.host.network.readopt(id, slot, core.network);
  const directory = core.machineDirectory;
  let vmm: Vmm | undefined;
  let problem = 'its VMM was gone when the host agent started';
  try {
    vmm = await withDeadline(ADOPT_DEADLINE_MS, 'finding the VMM again', () => driver.adopt(directory));
  } catch (error) {
    core.log.error({ err: error }, 'VM not adopted');
    problem = 'its VMM could not be found again';
  }
  if (vmm !== undefined) core.hold({ vmm, guest: connectGuest(vmm), directory });
  await core.execs.load();
  if (vmm === undefined) return core.die(problem);
  await vmm.resume(core.stopping.signal).catch((error: unknown) => {
    if (!core.stopping.signal.aborted) core.log.error({ err: error }, 'adopted VMM does not run on');
  });
  await discardPaused(directory);
  await sweepMachines(driver, core.directory, core.record.machine);
}
