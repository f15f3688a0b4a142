/** Between tests: nothing of an earlier one is left, and that is so on the host too. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { isNotFound } from '@fuse/sdk';
import { expect } from 'vitest';
import type { LocalStack } from './local-stack.ts';

const ignoreGone = (error: unknown): void => {
  if (!isNotFound(error)) throw error;
};

export interface LeftOnHost {
  vms: string[];
  snapshots: string[];
}

/** Names of directories. */
export async function leftOnHost(stack: LocalStack): Promise<LeftOnHost> {
  const names = (folder: string) => readdir(join(stack.home, 'host', folder)).catch((): string[] => []);
  return { vms: (await names('vms')).sort(), snapshots: (await names('snapshots')).sort() };
}

/** Destroys and deletes everything, and sees that no process and no directory is left. */
export async function clearAway(stack: LocalStack): Promise<void> {
  const { environments, snapshots } = stack.client;
  for (const { id } of await environments.list()) await environments.destroy(id).catch(ignoreGone);
  for (const { id } of await snapshots.list()) await snapshots.delete(id, { force: true }).catch(ignoreGone);
  expect([await environments.list(), await snapshots.list()]).toEqual([[], []]);
  await expect.poll(() => stack.vmmPids(), { timeout: 30_000 }).toEqual([]);
  await expect.poll(() => leftOnHost(stack), { timeout: 60_000 }).toEqual({ vms: [], snapshots: [] });
}

/** Kills the VMM of an environment that is the only one running: no command line names what it is of. */
export async function killVmmOf(stack: LocalStack, id: string): Promise<void> {
  const others = await stack.client.environments.list();
  expect(
    others.filter((each) => each.state === 'running').map((each) => each.id),
    'it is the only one that runs',
  ).toEqual([id]);
  const pids = await stack.vmmPids();
  expect(pids).toHaveLength(1);
  for (const pid of pids) process.kill(pid, 'SIGKILL');
  while ((await stack.vmmPids()).length > 0) await delay(10);
}
