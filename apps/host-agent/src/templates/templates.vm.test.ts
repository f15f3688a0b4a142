import { execFile } from 'node:child_process';
import { mkdir, open, readdir, readFile, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { sleep } from '@fuse/runtime';
import { runningProcesses } from '@fuse/testing';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { openQemuDriver } from '../vmm/qemu/qemu-driver.ts';
import {
  newIdentity,
  runIn,
  shellIn,
  TestMachines,
  testDataDirectory,
  testLog,
  testShape,
} from '../vmm/test-machines.ts';
import { Templates } from './templates.ts';

/** Quick to make: what is tested here is not how warm a template is. */
let machines: TestMachines;
let directory: string;
let templates: Templates;

beforeAll(async () => {
  machines = await TestMachines.open(openQemuDriver);
});
beforeEach(async () => {
  directory = join(await machines.newDirectory(), 'templates');
  templates = openTemplates();
});
afterEach(async () => {
  await machines.endAll();
  await templates[Symbol.asyncDispose]();
  await rm(directory, { recursive: true, force: true });
});
afterAll(() => machines?.[Symbol.asyncDispose]());

function openTemplates(): Templates {
  return new Templates({ directory, driver: machines.driver, assets: machines.assets, log: testLog });
}
const image = () => ({ ...machines.image, warm: [['sh', '-c', 'echo warm > /dev/shm/warm']] });
const ensure = (from = templates) => from.ensure(image(), testShape);
const entries = async () => (await readdir(directory)).sort();
const madeAt = async (key: string) => (await stat(join(directory, key, 'memory'))).ino;

describe('a template', () => {
  it('is made once when 20 ask for it at the same time, and is then found by another process', async () => {
    const all = await Promise.all(Array.from({ length: 20 }, () => ensure()));
    const keys = new Set(all.map(({ key }) => key));
    expect(keys.size).toBe(1);
    expect(await entries()).toEqual([...keys]);
    const [key = ''] = keys;
    expect(await readdir(join(directory, key))).toEqual(['device', 'disk.img', 'memory', 'template.json']);

    const before = await madeAt(key);
    await using other = openTemplates();
    expect((await ensure(other)).key).toBe(key);
    expect(await madeAt(key)).toBe(before);
  });

  it('is made once when two of them, as in two processes, want it at the same time', async () => {
    await using other = openTemplates();
    const [one, two] = await Promise.all([ensure(), ensure(other)]);
    expect(one).toEqual(two);
    expect(await entries()).toEqual([one.key]);
  });

  it('starts VMs in which the warm commands have run and that have no identity of their own yet', async () => {
    const machine = await machines.restore(await ensure());
    expect((await machine.guest.health()).generation).toBe(0);
    expect(await shellIn(machine.guest, 'cat /dev/shm/warm')).toBe('warm\n');
    expect((await machine.guest.health()).execs).toBe(0);
    await machine.guest.identity(newIdentity('vm'));
    expect((await runIn(machine.guest, ['hostname'])).stdout.toString()).toBe('vm\n');
  });

  it('depends on the image, its warm commands and the shape', async () => {
    const [one, two] = await Promise.all([ensure(), templates.ensure(image(), { ...testShape, storage_gb: 2 })]);
    expect(one.key).not.toBe(two.key);
    expect((await stat(two.diskPath)).size).toBe(2 * 1024 ** 3);
  });

  it('is made even when the first who asked goes away', async () => {
    const stop = new AbortController();
    const gone = templates.ensure(image(), testShape, stop.signal);
    const staying = ensure();
    setTimeout(() => stop.abort(new Error('gone')), 200);
    await expect(gone).rejects.toThrow('gone');
    expect(await entries()).toHaveLength(1);
    await staying;
  });

  it('of which any byte is flipped, or a hole is written to, is made again, though size and time are right', async () => {
    const { key } = await ensure();
    for (const [part, offset] of [
      ['memory', 100_000_000],
      ['device', 1_000],
      ['disk.img', 1_100],
      ['disk.img', 900_000_000],
    ] as const) {
      const before = await madeAt(key);
      await flipByte(join(directory, key, part), offset);
      await using fresh = openTemplates();
      await ensure(fresh);
      expect(await madeAt(key), part).not.toBe(before);
      expect(await entries()).toEqual([key]);
    }
    const machine = await machines.restore(await ensure());
    expect(await shellIn(machine.guest, 'echo works')).toBe('works\n');
  });

  it('that is damaged while it is in use is noticed and made again', async () => {
    const { key, diskPath } = await ensure();
    const before = await madeAt(key);
    await writeFile(diskPath, 'nonsense');
    expect((await ensure()).key).toBe(key);
    expect(await madeAt(key)).not.toBe(before);
    await rm(join(directory, key, 'device'));
    await ensure();
    expect(await readdir(join(directory, key))).toContain('device');
    await writeFile(join(directory, key, 'template.json'), '{}');
    await using fresh = openTemplates();
    await ensure(fresh);
    expect(await readFile(join(directory, key, 'template.json'), 'utf8')).toContain('madeFrom');
  });

  it('goes on for the VMs that run on it when it is removed', async () => {
    const { key, snapshot, diskPath } = await ensure();
    const machine = await machines.restore({ snapshot, diskPath });
    await rm(join(directory, key), { recursive: true });
    expect(await shellIn(machine.guest, 'python3 -c "print(6*7)"')).toBe('42\n');
    await machine.vmm.pause();
    const taken = await machines.capture(machine);
    await machines.end(machine);
    const copy = await machines.restore(taken);
    expect(await shellIn(copy.guest, 'cat /dev/shm/warm')).toBe('warm\n');
  });
});

describe('making that fails', () => {
  it('says why with the end of the console, leaves nothing, and the next try works', async () => {
    const path = join(machines.directory, 'no-initramfs');
    await writeFile(path, '');
    const broken = { ...machines.assets, initramfs: { ...machines.assets.initramfs, path } };
    await using failing = new Templates({ directory, driver: machines.driver, assets: broken, log: testLog });
    const error = await ensure(failing).catch((each: unknown) => each);
    expect(error).toMatchObject({ code: 'unavailable' });
    expect((error as { details: { console: string } }).details.console).toContain('Kernel panic');
    expect(await entries()).toEqual([]);
    await ensure();
  });

  it('is stopped by disposing, with nothing left', async () => {
    const making = ensure();
    making.catch(() => {});
    await expect.poll(async () => (await readdir(directory).catch(() => [])).length).toBeGreaterThan(0);
    await sleep(1_000);
    await templates[Symbol.asyncDispose]();
    await expect(making).rejects.toThrow();
    expect(await entries()).toEqual([]);
  });

  it('because the process was killed leaves a VM and a directory that sweeping removes, and is never used', async () => {
    await mkdir(directory, { recursive: true });
    const { driver, assets } = machines;
    const built = (path: string) => JSON.stringify(new URL(`../../dist/${path}`, import.meta.url).href);
    const script = `
      import { openQemuDriver } from ${built('vmm/qemu/qemu-driver.js')};
      import { Templates } from ${built('templates/templates.js')};
      const log = { info() {}, warn() {}, debug() {} };
      const driver = await openQemuDriver({ ...${JSON.stringify({ dataDirectory: testDataDirectory, kernelPath: assets.kernel.path })}, log });
      const templates = new Templates({ directory: ${JSON.stringify(directory)}, assets: ${JSON.stringify(assets)}, driver, log });
      setTimeout(() => process.kill(process.pid, 'SIGKILL'), 2500);
      await templates.ensure(${JSON.stringify(image())}, ${JSON.stringify(testShape)});`;
    const killed = promisify(execFile)(process.execPath, ['--input-type=module', '-e', script]);
    await expect(killed).rejects.toMatchObject({ signal: 'SIGKILL' });
    const [leftover = ''] = await entries();
    expect(leftover).toMatch(/^\.making-/);
    expect(await driver.adopt(join(directory, leftover, 'vm'))).toBeDefined();

    const { key } = await ensure();
    expect(await entries()).toEqual([leftover, key]);
    await templates.sweep();
    expect(await entries()).toEqual([key]);
    expect((await runningProcesses()).filter(({ command }) => command.includes(leftover))).toEqual([]);
  });
});

describe('sweeping', () => {
  it('removes templates that nothing here can ask for, keeps the others and what is being made', async () => {
    const { key } = await ensure();
    const { assets, driver } = machines;
    const kernel = { ...assets.kernel, sha256: '0'.repeat(64) };
    const making = templates.ensure(image(), { ...testShape, storage_gb: 2 });
    await expect.poll(async () => (await entries()).length).toBe(2);
    await templates.sweep();
    expect(await entries()).toHaveLength(2);
    const other = await making;
    await using later = new Templates({ directory, driver, assets: { ...assets, kernel }, log: testLog });
    await templates.sweep();
    expect(await entries()).toEqual([key, other.key].sort());
    await later.sweep();
    expect(await entries()).toEqual([]);
  });
});

async function flipByte(path: string, offset: number): Promise<void> {
  const { atime, mtime } = await stat(path);
  const file = await open(path, 'r+');
  try {
    const { buffer } = await file.read(Buffer.alloc(1), 0, 1, offset);
    await file.write(Buffer.from([(buffer[0] ?? 0) ^ 0x55]), 0, 1, offset);
  } finally {
    await file.close();
  }
  await utimes(path, atime, mtime);
}
