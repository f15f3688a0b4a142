/** VMs whose host agent was killed and whose data directory was deleted: the next host agent of the machine, whichever it is, removes what is left of them. */
import { readdir, readlink, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { newId } from '@fuse/runtime';
import { runningProcesses } from '@fuse/testing';
import { expect, it } from 'vitest';
import { slotNames, slotPrefix } from '../network/slot.ts';
import { TestHost } from '../vms/test-host.ts';
import { TestProgram } from '../vms/test-program.ts';

const closed = { policies: [{ egress: 'allowlist' as const, allow: [], deny: [] }] };

/** With a VM that has a network, and no host agent any more. */
async function killed(): Promise<{ host: TestHost; vm: string; prefix: string }> {
  const host = await TestHost.open();
  await host.stop();
  const program = new TestProgram(host);
  await program.start();
  const { id } = await host.create({ network: closed }, newId('vm'));
  await program.kill();
  return { host, vm: id, prefix: await slotPrefix(join(host.directory, 'host')) };
}

const processesOf = async ({ host }: { host: TestHost }) =>
  (await Promise.all((await runningProcesses()).map(async (each) => ({ ...each, cwd: await cwdOf(each.pid) }))))
    .filter(({ command, cwd }) => command.includes(host.directory) || cwd.startsWith(host.directory))
    .map(({ command }) => command.split(/[ \0]/)[0]?.split('/').at(-1))
    .sort();
const cwdOf = (pid: number) => readlink(`/proc/${pid}/cwd`).catch(() => '');
const uidsOf = async ({ host }: { host: TestHost }) => {
  const all = await readdir('/run/fuse/vmm-uids');
  const owners = await Promise.all(all.map((name) => readlink(join('/run/fuse/vmm-uids', name)).catch(() => '')));
  return owners.filter((owner) => owner.includes(host.directory));
};

const programs = ['fuse-gateway', 'qemu-system-x86_64'];

it('are ended with their network, their users and their gateway; those whose directory is there live on', async () => {
  const lost = await killed();
  await using kept = (await killed()).host;
  expect(await processesOf(lost)).toEqual(programs);
  await rm(lost.host.directory, { recursive: true });
  expect(await slotNames(lost.prefix)).not.toEqual([]);

  await using _next = await TestHost.open();
  expect(await processesOf(lost)).toEqual([]);
  expect(await slotNames(lost.prefix)).toEqual([]);
  expect(await uidsOf(lost)).toEqual([]);
  expect(await processesOf({ host: kept })).toEqual(programs);
  expect(await uidsOf({ host: kept })).toHaveLength(1);
});

it('are left alone when their directory is only elsewhere, renamed or not mounted', async () => {
  const { host, prefix } = await killed();
  await using away = host;
  const elsewhere = `${away.directory}-elsewhere`;
  await rename(away.directory, elsewhere);
  try {
    await using _next = await TestHost.open();
  } finally {
    await rename(elsewhere, away.directory);
  }
  expect(await processesOf({ host: away })).toEqual(programs);
  expect(await uidsOf({ host: away })).toHaveLength(1);
  expect(await slotNames(prefix)).not.toEqual([]);
});
