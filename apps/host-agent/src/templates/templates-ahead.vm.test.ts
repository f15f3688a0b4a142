/** Templates that a host agent makes by itself, in a data directory that has none. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { HostCapacityReport } from '@fuse/host-protocol';
import { runningProcesses, type TemporaryDirectory, temporaryDirectory } from '@fuse/testing';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { slotNames, slotPrefix } from '../network/slot.ts';
import { TEST_SHAPE, TestHost } from '../vms/test-host.ts';

let directory: TemporaryDirectory;
let dataDirectory: string;
let host: TestHost;
const kind = (networkCard: boolean) => ({ image: 'base', shape: TEST_SHAPE, networkCard });
const closed = { policies: [{ egress: 'allowlist' as const, allow: [], deny: [] }] };
const entries = () => readdir(join(dataDirectory, 'templates'));
const listed = async () => (await host.call<HostCapacityReport>('GET', '/v1/capacity')).templates;

beforeAll(async () => {
  directory = await temporaryDirectory('fuse-ahead-');
  dataDirectory = join(directory.path, 'host');
  host = await TestHost.open({ dataDirectory, templatesAhead: [kind(true)] });
});
afterAll(async () => {
  await host?.[Symbol.asyncDispose]();
  await directory[Symbol.asyncDispose]();
});

it('come without being asked for; a start that needs one meanwhile waits for it, and is told of with its card', async () => {
  await expect.poll(entries).toHaveLength(1);
  expect(await listed()).toEqual([]);
  const vm = await host.create({ network: closed });
  expect(await listed()).toEqual([{ image: 'base', ...TEST_SHAPE, network_card: true }]);
  expect(await entries()).toHaveLength(1);
  await host.destroy(vm.id);
});

it('are given up when the host agent stops, with nothing left of them', async () => {
  await host.stop();
  await host.start({ templatesAhead: [kind(true), kind(false)] });
  await expect.poll(entries).toHaveLength(2);
  await host.stop();
  expect(await entries()).toHaveLength(1);
  expect(await slotNames(await slotPrefix(dataDirectory))).toEqual([]);
  expect((await runningProcesses()).filter(({ command }) => command.includes(dataDirectory))).toEqual([]);
  await host.start();
});
