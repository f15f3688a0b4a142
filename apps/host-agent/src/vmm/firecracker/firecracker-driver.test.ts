/** The whole driver against Firecracker's API as it is described, in the order that Firecracker takes, with what can go wrong at the other end. */
import { execFile } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { mkdir, open, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { createLogger } from '@fuse/runtime';
import { runningProcesses, temporaryDirectory } from '@fuse/testing';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Confinement, DEFAULT_CONFINEMENT } from '../../confinement/confinement.ts';
import { openLayer, PAGE_BYTES } from '../../snapshots/memory/layer-file.ts';
import { LayerWriter } from '../../snapshots/memory/layer-writer.ts';
import type { BootSpec, MachineSpec, RestoreSpec, SnapshotFiles, Vmm } from '../driver.ts';
import { FirecrackerDriver } from './firecracker-driver.ts';
import type { Rates } from './machine-configuration.ts';
import { type FirecrackerPrograms, findFirecracker } from './programs.ts';
import { apiDescriptionIsThere } from './test-api-rules.ts';
import { FakeFirecracker } from './test-firecracker.ts';
import { GENERATION_AT, NEW_GENERATION } from './test-machine.ts';

const MEMORY_MIB = 4;
const MEMORY_BYTES = MEMORY_MIB * 1_048_576;

/** Undefined: these tests can run. */
const missing = !apiDescriptionIsThere
  ? 'the description of its API (shared/firecracker-api.yaml) is not beside the project'
  : !existsSync('/usr/bin/python3')
    ? 'there is no python3'
    : process.geteuid?.() !== 0
      ? 'not root'
      : undefined;

describe.skipIf(missing !== undefined)(
  `the Firecracker driver${missing === undefined ? '' : ` (not run: ${missing})`}`,
  () => {
    const log = createLogger({ name: 'test', level: 'silent' });
    let fake: FakeFirecracker;
    let programs: FirecrackerPrograms;
    let confinement: Confinement;
    let removePrograms: () => PromiseLike<void>;
    let directory: string;
    let remove: () => PromiseLike<void>;
    let driver: FirecrackerDriver;
    let vmms: Vmm[];

    beforeAll(async () => {
      const temporary = await temporaryDirectory('fuse-firecracker-bin-');
      removePrograms = temporary[Symbol.asyncDispose];
      fake = await FakeFirecracker.open(temporary.path);
      programs = await findFirecracker({
        firecracker: join(temporary.path, 'firecracker'),
        jailer: join(temporary.path, 'jailer'),
      });
      const opened = await Confinement.open({ ...DEFAULT_CONFINEMENT, mode: 'required' }, log);
      if (opened === undefined) throw new Error('required, and not there');
      confinement = opened;
    });
    afterAll(async () => {
      await fake?.[Symbol.asyncDispose]();
      await removePrograms?.();
    });
    beforeEach(async () => {
      const temporary = await temporaryDirectory('fuse-firecracker-');
      directory = temporary.path;
      remove = temporary[Symbol.asyncDispose];
      vmms = [];
      driver = openDriver();
      for (const name of ['kernel', 'initramfs', 'image'])
        await writeFile(join(directory, name), name, { mode: 0o600 });
    });
    afterEach(async () => {
      fake.interfere = undefined;
      await Promise.all(vmms.map((vmm) => vmm.destroy()));
      await remove();
    });

    const openDriver = (rates: Rates = {}) => new FirecrackerDriver({ programs, confinement, rates, log });

    async function machineSpec(name: string): Promise<MachineSpec & { kernelPath: string; initramfsPath: string }> {
      const own = join(directory, name);
      await mkdir(own);
      await writeFile(join(own, 'writable.img'), 'a disk', { mode: 0o600 });
      const [kernelPath, initramfsPath, imagePath] = ['kernel', 'initramfs', 'image'].map((each) =>
        join(directory, each),
      );
      if (kernelPath === undefined || initramfsPath === undefined || imagePath === undefined) throw new Error('never');
      return {
        ...{ kernelPath, initramfsPath, imagePath },
        directory: own,
        shape: { cpus: 2, memoryMiB: MEMORY_MIB },
        writableDiskPath: join(own, 'writable.img'),
      };
    }

    async function boot(change: Partial<BootSpec> = {}, signal?: AbortSignal, name = 'booted'): Promise<Vmm> {
      const vmm = await driver.boot({ ...(await machineSpec(name)), ...change }, signal);
      vmms.push(vmm);
      return vmm;
    }

    /** `text` at the beginning of each of its pages. */
    async function snapshotOf(pages: Record<number, string>): Promise<SnapshotFiles> {
      const [memoryPath, devicePath] = [join(directory, 'template-memory'), join(directory, 'template-device')];
      const memory = await open(memoryPath, 'wx', 0o600);
      await memory.truncate(MEMORY_BYTES);
      for (const [page, text] of Object.entries(pages)) await memory.write(text, Number(page) * PAGE_BYTES);
      await memory.close();
      await writeFile(devicePath, 'devices', { mode: 0o600 });
      return { memoryPath, devicePath };
    }

    async function restore(
      name: string,
      snapshot: SnapshotFiles,
      change: Partial<RestoreSpec> = {},
      signal?: AbortSignal,
    ): Promise<Vmm> {
      const vmm = await driver.restore({ ...(await machineSpec(name)), snapshot, ...change }, signal);
      vmms.push(vmm);
      return vmm;
    }

    const captureFiles = (name: string) => ({
      memoryPath: join(directory, `${name}-memory`),
      devicePath: join(directory, `${name}-device`),
      layerPath: join(directory, `${name}-layer`),
    });
    const peek = (at: number, length: number) => fake.last.machine.jailed({ do: 'peek', at, length });
    const poke = (at: number, text: string) => fake.last.machine.jailed({ do: 'poke', at, text });
    const pathsCalled = () => fake.last.calls.map(({ method, path }) => `${method} ${path}`);
    const uidOfPath = async (path: string) => (await stat(path)).uid;

    describe('boot', () => {
      it('tells all of a machine, each request right and in an order that is taken', async () => {
        await boot();
        expect(pathsCalled()).toEqual([
          'PUT /metrics',
          'PUT /serial',
          'PUT /machine-config',
          'PUT /boot-source',
          'PUT /drives/image',
          'PUT /drives/writable',
          'PUT /vsock',
          'PUT /entropy',
          'PUT /actions',
        ]);
        expect(fake.last.calls.every(({ status }) => status === 204)).toBe(true);
        expect(fake.last.calls[2]?.body).toMatchObject({ vcpu_count: 2, mem_size_mib: MEMORY_MIB, smt: false });
        expect(fake.last.calls[4]?.body).toMatchObject({ is_read_only: true, is_root_device: false });
      });

      it('keeps serial ports from the guest, and lets its kernel write to the console that is asked for', async () => {
        await boot();
        const kernelArguments = () => JSON.stringify(fake.last.calls[3]?.body);
        expect(kernelArguments()).toContain('8250.nr_uarts=0');
        expect(kernelArguments()).not.toContain('console=');
        expect(fake.last.calls[1]?.body).toMatchObject({ rate_limiter: { size: 4_096 } });
        const consolePath = join(directory, 'console.log');
        await boot({ consolePath }, undefined, 'second');
        expect(kernelArguments()).toContain('earlyprintk=ttyS0');
        await fake.last.machine.jailed({ do: 'write', path: '/console', text: 'Kernel panic' });
        expect(await readFile(consolePath, 'utf8')).toBe('Kernel panic');
      });

      it('has it in a jail: user, namespace, limits and control group of its own', async () => {
        const vmm = await boot();
        const { order } = fake.last;
        expect(order.uid).toBeGreaterThanOrEqual(DEFAULT_CONFINEMENT.uidBase);
        expect(order.flags).toEqual(['--new-pid-ns']);
        expect(order.netns).toBeNull();
        expect(order.limits).toMatchObject({ 'no-file': 256 });
        expect(order.limits.fsize).toBeLessThan(100_000_000);
        const proc = (file: string) => readFileSync(`/proc/${vmm.pid}/${file}`, 'utf8');
        expect(proc('status')).toMatch(new RegExp(`^Uid:\\s+${order.uid}\\s`, 'm'));
        expect(proc('cgroup')).toContain(`/fuse/vmm-${order.uid}`);
        expect(proc('oom_score_adj').trim()).toBe('0');
        expect(proc('limits')).toMatch(/^Max core file size\s+0\s+0/m);
        const { stdout } = await promisify(execFile)('readlink', [`/proc/${vmm.pid}/ns/net`, '/proc/self/ns/net']);
        expect(new Set(stdout.trim().split('\n')).size).toBe(2);
      });

      it('gives the disk to that user for as long as it lives, and leaves nothing', async () => {
        const vmm = await boot();
        const disk = join(directory, 'booted', 'writable.img');
        expect(await uidOfPath(disk)).toBe(fake.last.order.uid);
        expect(await uidOfPath(join(directory, 'image'))).toBe(0);
        await vmm.destroy();
        expect(await vmm.exited).toMatchObject({ signal: 'SIGKILL', outOfMemory: false });
        expect(await uidOfPath(disk)).toBe(0);
        expect((await runningProcesses()).map(({ pid }) => pid)).not.toContain(vmm.pid);
        expect(existsSync(join(directory, 'booted', 'jail'))).toBe(false);
        expect(confinement.find(join(directory, 'booted'))).toBeUndefined();
      });

      it('limits disks and cards', async () => {
        driver = openDriver({
          disk: { bytesPerSecond: 1_000_000, requestsPerSecond: 500 },
          network: { bytesPerSecond: 2_000_000 },
        });
        await boot({ network: { namespacePath: '/proc/self/ns/net', tapName: 'tap0', mac: '02:00:00:00:00:01' } });
        const bodies = new Map(fake.last.calls.map(({ path, body }) => [path, body]));
        const disk = { bandwidth: { size: 1_000_000, refill_time: 1_000 }, ops: { size: 500, refill_time: 1_000 } };
        expect(bodies.get('/drives/image')).toMatchObject({ rate_limiter: disk });
        expect(bodies.get('/drives/writable')).toMatchObject({ rate_limiter: disk });
        expect(bodies.get('/network-interfaces/eth0')).toMatchObject({
          host_dev_name: 'tap0',
          guest_mac: '02:00:00:00:00:01',
          tx_rate_limiter: { bandwidth: { size: 2_000_000 }, ops: { size: 0 } },
        });
        expect(fake.last.order.netns).toBe('/proc/self/ns/net');
      });

      it.each([
        ['imagePath', 'no-such-image'],
        ['kernelPath', 'no-such-kernel'],
      ] as const)('fails when its %s is missing, and leaves nothing', async (field, name) => {
        await expect(boot({ [field]: join(directory, name) })).rejects.toThrow(name);
        expect(confinement.find(join(directory, 'booted'))).toBeUndefined();
      });

      it('refuses more CPUs than Firecracker has, before anything is started', async () => {
        const before = fake.machines.length;
        await expect(boot({ shape: { cpus: 33, memoryMiB: MEMORY_MIB } })).rejects.toThrow('at most 32 CPUs');
        expect(fake.machines).toHaveLength(before);
      });

      it('has one VM a directory', async () => {
        const before = fake.machines.length;
        const spec = await machineSpec('booted');
        vmms.push(await driver.boot(spec));
        await expect(driver.boot(spec)).rejects.toThrow();
        expect(fake.machines).toHaveLength(before + 1);
        expect(await driver.adopt(spec.directory)).toBeDefined();
      });
    });

    describe('at the other end', () => {
      it.each([
        ['a refusal', { status: 400, body: '{"fault_message":"no such luck"}' }, /refused PUT \/vsock: no such luck/],
        ['one without a reason', { status: 500, body: 'oops' }, /does not say why/],
      ])('%s is told in its words, and nothing is left', async (_what, answer, expected) => {
        fake.interfere = ({ path }, response) => {
          if (path === '/vsock') response.writeHead(answer.status).end(answer.body);
          return path === '/vsock';
        };
        await expect(boot()).rejects.toMatchObject({ code: 'unavailable', message: expect.stringMatching(expected) });
        expect(confinement.find(join(directory, 'booted'))).toBeUndefined();
      });

      it.each(['garbage', 'an endless answer', 'endless headers', 'a cut'])('%s fails the start', async (what) => {
        fake.interfere = ({ path }, response) => {
          if (path !== '/machine-config') return false;
          const socket = response.socket;
          if (what === 'garbage') socket?.end('SSH-2.0-OpenSSH_9\r\n\r\n');
          else if (what === 'a cut') socket?.destroy();
          else if (what === 'endless headers') socket?.write(`HTTP/1.1 200 OK\r\nx: ${'x'.repeat(1_000_000)}`);
          else {
            response.writeHead(200);
            const more = () => {
              while (!response.destroyed && response.write('x'.repeat(65_536)));
              response.once('drain', more);
            };
            more();
          }
          return true;
        };
        await expect(boot()).rejects.toMatchObject({ code: 'unavailable' });
        expect(existsSync(join(directory, 'booted', 'jail'))).toBe(false);
      });

      it('silence ends when it is aborted, and so does the process', async () => {
        const abort = new AbortController();
        fake.interfere = ({ path }) => {
          if (path === '/actions') abort.abort(new Error('not wanted any more'));
          return path === '/actions';
        };
        await expect(boot({}, abort.signal)).rejects.toThrow('not wanted any more');
        expect(await driver.adopt(join(directory, 'booted'))).toBeUndefined();
      });

      it('death is told with its last words', async () => {
        fake.interfere = async ({ path }, _response, machine) => {
          if (path === '/boot-source') void machine.jailed({ do: 'exit', code: 148, says: 'Seccomp says no' });
          return path === '/boot-source';
        };
        await expect(boot()).rejects.toThrow(/Seccomp says no/);
      });

      it('death of a VM that runs is told, and makes everything else vm_lost', async () => {
        const vmm = await boot();
        void fake.last.machine.jailed({ do: 'exit', code: 1, says: 'I am gone' });
        expect((await vmm.exited).logTail).toContain('I am gone');
        await expect(vmm.pause()).rejects.toMatchObject({ code: 'vm_lost' });
        await expect(vmm.openGuestChannel()).rejects.toMatchObject({ code: 'vm_lost' });
      });

      it('a jailer that refuses is told with its reason', async () => {
        await boot();
        const jailer = join(directory, 'jailer');
        await writeFile(jailer, '#!/bin/sh\necho no such jail >&2\nexit 1\n', { mode: 0o755 });
        driver = new FirecrackerDriver({ programs: { ...programs, jailer }, confinement, log });
        await expect(boot({}, undefined, 'second')).rejects.toThrow(/no such jail/);
        expect(confinement.find(join(directory, 'second'))).toBeUndefined();
      });
    });

    describe('restore', () => {
      it('loads memory privately and runs', async () => {
        const snapshot = await snapshotOf({ 3: 'template' });
        await restore('one', snapshot);
        expect(pathsCalled()).toEqual([
          'PUT /metrics',
          'PUT /serial',
          'PUT /snapshot/load',
          'PATCH /drives/image',
          'PATCH /drives/writable',
          'PATCH /vm',
        ]);
        expect(fake.last.machine.state).toBe('Running');
        expect(await peek(3 * PAGE_BYTES, 8)).toBe('template');
        await poke(3 * PAGE_BYTES, 'changed!');
        await restore('two', snapshot);
        expect(await peek(3 * PAGE_BYTES, 8)).toBe('template');
      });

      it('gives it the tap and the rates of now', async () => {
        driver = openDriver({ network: { bytesPerSecond: 5_000_000 } });
        await restore('one', await snapshotOf({}), {
          network: { namespacePath: '/proc/self/ns/net', tapName: 'tap7', mac: '02:00:00:00:00:01' },
        });
        const bodies = new Map(fake.last.calls.map(({ path, body }) => [path, body]));
        expect(bodies.get('/snapshot/load')).toMatchObject({
          network_overrides: [{ iface_id: 'eth0', host_dev_name: 'tap7' }],
          resume_vm: false,
        });
        expect(bodies.get('/network-interfaces/eth0')).toMatchObject({
          rx_rate_limiter: { bandwidth: { size: 5_000_000 } },
        });
        expect(bodies.get('/drives/writable')).toMatchObject({ rate_limiter: { bandwidth: { size: 0 } } });
      });

      it('puts layers over the memory, but not over what loading wrote', async () => {
        const snapshot = await snapshotOf({ 1: 'old page', 2: 'old page', 5: 'gone' });
        const layerPath = join(directory, 'layer');
        const pages: [number, Buffer][] = [
          [1, Buffer.alloc(PAGE_BYTES, 'layered ')],
          [2, Buffer.alloc(PAGE_BYTES, 'layered ')],
          [5, Buffer.alloc(PAGE_BYTES)],
        ];
        await LayerWriter.write(layerPath, MEMORY_BYTES, async (layer) => {
          for (const [page, bytes] of pages) await layer.append(page, bytes, () => true);
        });
        await restore('one', { ...snapshot, layerPaths: [layerPath] });
        expect(await peek(2 * PAGE_BYTES, 8)).toBe('layered ');
        expect(await peek(5 * PAGE_BYTES, 4)).toBe('\0\0\0\0');
        expect(await peek(GENERATION_AT, 16)).toBe(NEW_GENERATION);
        expect(await peek(GENERATION_AT - 8, 8)).toBe('layered ');
        expect(await peek(GENERATION_AT + 16, 8)).toBe('layered ');
      });

      it('fails with the reason when the snapshot cannot be loaded', async () => {
        const snapshot = await snapshotOf({});
        await expect(restore('one', { ...snapshot, devicePath: join(directory, 'nothing') })).rejects.toThrow(
          'nothing',
        );
        await writeFile(join(directory, 'short'), 'not memory');
        await writeFile(join(directory, 'layer'), 'not a layer');
        await expect(restore('two', { ...snapshot, layerPaths: [join(directory, 'layer')] })).rejects.toMatchObject({
          code: 'integrity_error',
        });
        expect(await driver.adopt(join(directory, 'two'))).toBeUndefined();
      });

      it('is cut short when it is aborted', async () => {
        const abort = new AbortController();
        fake.interfere = ({ path }) => {
          if (path === '/snapshot/load') abort.abort(new Error('not wanted any more'));
          return path === '/snapshot/load';
        };
        await expect(restore('one', await snapshotOf({}), {}, abort.signal)).rejects.toThrow('not wanted any more');
        expect(confinement.find(join(directory, 'one'))).toBeUndefined();
      });
    });

    describe('capture', () => {
      it('is a link to the memory and a layer of what the VM wrote, each time all of it', async () => {
        const snapshot = await snapshotOf({ 3: 'template', 9: 'template' });
        const vmm = await restore('one', snapshot);
        await poke(9 * PAGE_BYTES, 'first');
        await vmm.pause();
        await vmm.capture(captureFiles('first'));
        await vmm.resume();
        await poke(11 * PAGE_BYTES, 'second');
        await vmm.pause();
        await vmm.capture(captureFiles('second'));
        const { memoryPath, devicePath, layerPath } = captureFiles('second');
        expect((await stat(memoryPath)).ino).toBe((await stat(snapshot.memoryPath)).ino);
        expect(await readFile(devicePath, 'utf8')).toBe('the state of devices');
        expect(await uidOfPath(devicePath)).toBe(0);
        const layer = await openLayer(layerPath, MEMORY_BYTES);
        expect(layer.runs.map(({ firstPage }) => firstPage)).toEqual(
          [GENERATION_AT / PAGE_BYTES, 9, 11].map(Math.floor),
        );
        await layer[Symbol.asyncDispose]();

        await restore('copy', { memoryPath, devicePath, layerPaths: [layerPath] });
        expect(await peek(9 * PAGE_BYTES, 5)).toBe('first');
        expect(await peek(11 * PAGE_BYTES, 6)).toBe('second');
        expect(await peek(3 * PAGE_BYTES, 8)).toBe('template');
      });

      it('of a VM that booted holds all of its memory', async () => {
        const vmm = await boot();
        await poke(7 * PAGE_BYTES, 'here');
        await vmm.pause();
        const files = captureFiles('one');
        await vmm.capture(files);
        expect((await stat(files.memoryPath)).blocks).toBe(0);
        await restore('copy', { ...files, layerPaths: [files.layerPath] });
        expect(await peek(7 * PAGE_BYTES, 4)).toBe('here');
        expect(await peek(0, 6)).toBe('booted');
      });

      it('is refused while the VM runs, and leaves nothing', async () => {
        const vmm = await restore('one', await snapshotOf({}));
        await expect(vmm.capture(captureFiles('one'))).rejects.toMatchObject({ code: 'conflict' });
        expect(await readdir(directory)).not.toContain('one-layer');
      });

      it('leaves none of what Firecracker wrote', async () => {
        const vmm = await restore('one', await snapshotOf({}));
        await vmm.pause();
        await vmm.capture(captureFiles('one'));
        expect(await readdir(join(fake.last.order.root, 'run'))).toEqual(['api.sock', 'guest.sock']);
      });
    });

    it('makes a template of a VM that was booted for one, and of no other', async () => {
      const memoryPath = join(directory, 'shared');
      const vmm = await boot({ sharedMemoryPath: memoryPath });
      await poke(2 * PAGE_BYTES, 'warm');
      await vmm.pause();
      const files = { memoryPath, devicePath: join(directory, 'device') };
      await expect(vmm.snapshot({ ...files, memoryPath: join(directory, 'other') })).rejects.toMatchObject({
        code: 'conflict',
      });
      await vmm.snapshot(files);
      expect(await stat(memoryPath)).toMatchObject({ size: MEMORY_BYTES, uid: 0 });
      await restore('copy', files);
      expect(await peek(2 * PAGE_BYTES, 4)).toBe('warm');
      await expect(vmms[1]?.snapshot(files)).rejects.toMatchObject({ code: 'conflict' });
    });

    describe('the guest channel', () => {
      it('is the stream behind the handshake, nothing of it lost', async () => {
        const channel = await (await boot()).openGuestChannel();
        channel.write('echo');
        let text = '';
        for await (const chunk of channel) {
          text += chunk;
          if (text.endsWith('echo')) break;
        }
        expect(text).toBe('hello from the guestecho');
      });

      it('is unavailable while nobody listens', async () => {
        const vmm = await boot();
        fake.last.machine.listensOn = 1;
        await expect(vmm.openGuestChannel()).rejects.toMatchObject({ code: 'unavailable' });
      });

      it('gives way to the next', async () => {
        const vmm = await boot();
        const first = await vmm.openGuestChannel();
        await vmm.openGuestChannel();
        expect(first.destroyed).toBe(true);
      });
    });

    describe('adoption', () => {
      it('finds the VM again, before and after it was written down which process it is', async () => {
        const vmm = await boot();
        const adopted = await openDriver().adopt(join(directory, 'booted'));
        expect(adopted?.pid).toBe(vmm.pid);
        await adopted?.pause();
        expect(fake.last.machine.state).toBe('Paused');
        await promisify(execFile)('rm', [join(directory, 'booted', 'vmm.json')]);
        expect((await openDriver().adopt(join(directory, 'booted')))?.pid).toBe(vmm.pid);
      });

      it('gives back what a VM had that has ended since', async () => {
        const vmm = await boot();
        const cell = confinement.find(join(directory, 'booted'));
        process.kill(vmm.pid, 'SIGKILL');
        await vmm.exited;
        expect(await driver.adopt(join(directory, 'booted'))).toBeUndefined();
        expect(cell?.cgroup.exists).toBe(false);
      });
    });

    describe('a VMM that a guest has broken into', () => {
      it('cannot lead its host to another socket by a link', async () => {
        const secret = join(directory, 'secret.sock');
        let reached = 0;
        const server = createServer(() => reached++).listen(secret);
        try {
          const vmm = await boot();
          for (const path of ['/run/guest.sock', '/run']) {
            await fake.last.machine.jailed({ do: 'plant', path, target: path === '/run' ? directory : secret });
            await expect(vmm.openGuestChannel()).rejects.toMatchObject({ code: 'unavailable' });
            await expect(vmm.pause())
              .rejects.toBeDefined()
              .catch(() => {});
          }
          expect(reached).toBe(0);
        } finally {
          server.close();
        }
      });

      it("cannot fill its host's disk, in sight or out of it, and its end says so", async () => {
        const MIB = 1_048_576;
        const honest = await boot({}, undefined, 'honest');
        const disk = await open(join(directory, 'honest', 'writable.img'), 'r+');
        await disk.writeFile(Buffer.alloc(200 * MIB, 'x'));
        await disk.close();
        const fill = (path: string, hide = false) =>
          fake.last.machine.jailed({ do: 'fill', path, bytes: 50 * MIB, hide });
        const attacks: [string, () => Promise<unknown>][] = [
          ['large', async () => [await fill('/one'), await fill('/run/two'), await fill('/dev/net/three')]],
          ['hidden', async () => [await fill('/one', true), await fill('/two', true), await fill('/three', true)]],
          ['other', () => fake.last.machine.jailed({ do: 'mkdir', path: '/run/more' })],
          [
            'many',
            async () => {
              for (let n = 0; n < 64; n++)
                await fake.last.machine.jailed({ do: 'plant', path: `/run/${n}`, target: '/' });
            },
          ],
        ];
        const filling: Vmm[] = [];
        for (const [name, attack] of attacks) {
          filling.push(await boot({}, undefined, name));
          await attack();
        }
        for (const { exited } of filling)
          expect(await exited).toMatchObject({ logTail: expect.stringContaining('filled its root directory') });
        await honest.pause();
      }, 30_000);

      it('cannot have its host read or remove another file by a link', async () => {
        const secret = join(directory, 'secret');
        await writeFile(secret, 'a secret');
        const vmm = await restore('one', await snapshotOf({}));
        await vmm.pause();
        const { machine } = fake.last;
        const save = machine.jailed;
        fake.interfere = async ({ path }, response) => {
          if (path !== '/snapshot/create') return false;
          await save({ do: 'plant', path: '/run/new-device', target: secret });
          response.writeHead(204).end();
          return true;
        };
        const files = captureFiles('one');
        await expect(vmm.capture(files)).rejects.toMatchObject({ code: 'unavailable' });
        expect(existsSync(files.devicePath)).toBe(false);
        expect(await readFile(secret, 'utf8')).toBe('a secret');
      });
    });
  },
);
