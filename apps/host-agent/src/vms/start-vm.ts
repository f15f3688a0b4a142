/** Nothing -> running. On failure nothing is left, the VM's directory included. */
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError } from '@fuse/contract';
import { diskFullError, isDiskFull } from './disk-full.ts';
import { endMachine } from './machine.ts';
import { newExecScope } from './restore-vm.ts';
import { launchMachine, Phases, prepareNew, type StartedMachine } from './start-machine.ts';
import type { VmCore } from './vm-core.ts';
import { saveVmRecord } from './vm-record.ts';

const START_DEADLINE_MS = 300_000;

export async function startVm(core: VmCore): Promise<void> {
  const { signal } = core.stopping;
  const deadline = setTimeout(
    () => core.stopping.abort(new AppError('unavailable', `the VM did not start within ${START_DEADLINE_MS} ms`)),
    START_DEADLINE_MS,
  );
  let started: StartedMachine | undefined;
  try {
    const { order, machine } = core.record;
    core.host.driver.expectStart?.();
    await mkdir(core.directory, { mode: 0o700 });
    await saveVmRecord(core.directory, core.record);
    const directory = join(core.directory, machine);
    await mkdir(directory, { mode: 0o700 });
    const phases = new Phases();
    await using prepared = await prepareNew(core.host, order, directory, phases, signal);
    const { memory, fellBack, networkCard, devices } = prepared;
    if (networkCard) core.insertCard();
    const reason = order.seed === undefined ? 'create' : 'fork';
    started = await launchMachine(
      core.host,
      { order, directory, memory, devices, reason, previousGeneration: 0, network: core.networkOrder },
      phases,
      signal,
    );
    await core.save({
      state: 'running',
      generation: started.generation,
      timings: phases.end(),
      ...(order.seed !== undefined && memory !== undefined ? { exec_scope: newExecScope() } : {}),
      ...(fellBack === true ? { disk_only: true } : {}),
      ...(started.slot === undefined ? {} : { network_card: true, slot: started.slot }),
    });
    core.hold(started);
    if (core.state === 'starting') core.become('running');
  } catch (error) {
    if (started !== undefined) await endMachine(started);
    await core.host.network.detach(core.record.id);
    await rm(core.directory, { recursive: true, force: true });
    throw signal.aborted ? signal.reason : notNowError('started', error);
  } finally {
    clearTimeout(deadline);
  }
}

/** Only what the caller got wrong, and damage, stay what they are: any other failure is a 503 that left things as they were. */
export function notNowError(done: string, error: unknown): unknown {
  if (isDiskFull(error)) return diskFullError(error);
  if (error instanceof AppError && (error.status < 500 || !['internal', 'deadline_exceeded'].includes(error.code)))
    return error;
  const why = error instanceof AppError ? `: ${error.message}` : '';
  return new AppError('unavailable', `the VM could not be ${done}${why}`, { cause: error, retryAfterSeconds: 5 });
}
