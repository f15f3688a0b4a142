/** An environment whose VM is known to have died says so before the caller hears of it, and not only when the reconciler looks. */
import { AppError } from '@fuse/contract';
import type { EnvironmentRow } from '../db/schema.ts';
import type { EnvironmentContext } from './environment-context.ts';
import { environmentByUid, transition } from './environment-store.ts';

/** Does nothing unless `error` is the loss of the VM and the host confirms it. A run's environment is left to its driver. */
export async function noteLoss(context: EnvironmentContext, read: EnvironmentRow, error: unknown): Promise<void> {
  if (!(error instanceof AppError) || error.code !== 'vm_lost' || read.run_id !== null) return;
  try {
    const vm = await (await context.hosts.client(read.host_id)).vm(read.vm_id);
    const row = await environmentByUid(context.db.query, read.uid);
    if (vm.state !== 'dead' || row?.state !== 'running') return;
    await context.db.transaction((tx) => transition(tx, row, 'failed', vm.error ?? 'the vm died'));
  } catch (failure) {
    context.log.warn({ err: failure, environment: read.id }, 'loss of a VM not noted yet, the reconciler will');
  }
}
