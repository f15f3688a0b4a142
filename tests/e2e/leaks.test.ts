/** Real VMs come and go, one after the other and several at once: the service, its machine and its directory are then as they were. Thousands, without VMs: apps/orchestrator. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { nodeWebSockets } from '@fuse/sdk/node';
import { expectNoLeaks, type HeldResources, heldResources, resourceSnapshot } from '@fuse/testing';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { LocalStack } from './support/local-stack.ts';

const WARM_UP = 8;
const LIVES = 32;
const AT_ONCE = 4;
const HEAP_BYTES = 12 * 1024 * 1024;
/** Kept-alive connections come and go. */
const SOME = 12;

let stack: LocalStack;
beforeAll(async () => {
  stack = await LocalStack.up({ NODE_OPTIONS: '--inspect-port=0' });
}, 180_000);
afterAll(() => stack?.[Symbol.asyncDispose](), 60_000);

async function live(task_id: string): Promise<void> {
  const { id } = await stack.client.environments.create({ task_id, spec: { ram_mb: 256 } });
  expect((await stack.client.environments.exec(id, { cmd: ['echo', task_id] })).stdout).toBe(`${task_id}\n`);
  await stack.client.environments.destroy(id);
}

async function lives(count: number, atOnce: number, name: string): Promise<void> {
  let next = 0;
  const some = async () => {
    for (let at = next++; at < count; at = next++) await live(`${name}-${at}`);
  };
  await Promise.all(Array.from({ length: atOnce }, some));
}

interface Left extends HeldResources {
  heapBytes: number;
  vms: number;
}

async function whatIsLeft(): Promise<Left> {
  await expect.poll(() => stack.vmmPids()).toEqual([]);
  const count = async (path: string) => (await readdir(path).catch(() => [])).length; // not there: none
  return {
    heapBytes: await liveHeap(),
    ...(await heldResources(stack.pid)),
    vms: await count(join(stack.home, 'host', 'vms')),
  };
}

/** Of the service, by its inspector, after garbage was collected. */
async function liveHeap(): Promise<number> {
  process.kill(stack.pid, 'SIGUSR1');
  const address = /Debugger listening on (ws:\S+)/;
  const log = () => readFile(join(stack.home, 'service.log'), 'utf8');
  await expect.poll(async () => address.test(await log())).toBe(true);
  const url = address.exec(await log())?.[1] ?? '';
  const socket = await nodeWebSockets().open(new URL(url), { headers: {} });
  const writer = socket.writable.getWriter();
  for (const id of [1, 2]) await writer.write(JSON.stringify({ id, method: 'HeapProfiler.collectGarbage' }));
  await writer.write(JSON.stringify({ id: 3, method: 'Runtime.getHeapUsage' }));
  try {
    for await (const message of socket.readable) {
      const answer: { id?: number; result?: { usedSize: number } } = JSON.parse(String(message));
      if (answer.id === 3) return answer.result?.usedSize ?? 0;
    }
    throw new Error('the inspector did not answer');
  } finally {
    socket.close();
  }
}

it(`${WARM_UP + LIVES} VMs leave nothing behind`, { timeout: 600_000 }, async () => {
  await lives(WARM_UP, AT_ONCE, 'warm-up');
  const before = await whatIsLeft();
  const named = await resourceSnapshot({ directories: [join(stack.home, 'host', 'vms')], ownDescriptors: false });
  await lives(LIVES / 2, 1, 'one');
  await lives(LIVES / 2, AT_ONCE, 'many');
  const after = await whatIsLeft();
  expect([after.vms, after.processes]).toEqual([0, before.processes]);
  await expectNoLeaks(named); // directories, mounts, loop devices and processes of VMs
  expect(after.threads).toBeLessThanOrEqual(before.threads + 2);
  expect(after.descriptors).toBeLessThanOrEqual(before.descriptors + SOME);
  expect(after.heapBytes - before.heapBytes).toBeLessThan(HEAP_BYTES);
  const { allocated } = await stack.client.hosts.get('local');
  expect(allocated).toMatchObject({ cpus: 0, ram_mb: 0, storage_gb: 0, vm_count: 0 });
});
