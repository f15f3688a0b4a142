/** What every driver does, on real VMs. `<driver>/<driver>-driver.vm.test.ts` runs it. */
import { execFile } from 'node:child_process';
import { mkdir, open, readdir, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { AppError } from '@fuse/contract';
import { sleep } from '@fuse/runtime';
import { runningProcesses } from '@fuse/testing';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { Vmm } from './driver.ts';
import { newIdentity, type OpenDriver, runIn, shellIn, TestMachines, testDataDirectory } from './test-machines.ts';

/** On an idle machine it is well under half of it. */
const ANSWERS_WITHIN_MS = 2_000;

export interface DriverUnderTest {
  open: OpenDriver;
  /** JavaScript, to be run by another process: defines `openDriver` like `open`. */
  openDriverScript: string;
  /** Files in a VM's directory that name its process. */
  identityFile: string;
  /** Whether it is known how a process ended that somebody else killed. */
  reportsHowItEnded: boolean;
  /** What a guest writes to /proc/sysrq-trigger to end its machine: `o`, power off, or `b`, reset, where the machine has no power to switch off. */
  offKey: 'o' | 'b';
}

export function describeDriver(
  name: string,
  { open: openDriver, openDriverScript, identityFile, reportsHowItEnded, offKey }: DriverUnderTest,
): void {
  describe(`the ${name} driver`, () => {
    let machines: TestMachines;

    beforeAll(async () => {
      machines = await TestMachines.open(openDriver);
      await machines.template();
    });
    afterEach(() => machines.endAll());
    afterAll(() => machines?.[Symbol.asyncDispose]());

    describe('boot', () => {
      it('starts a kernel whose guest answers, and what is captured of it can be restored', async () => {
        const { guest, vmm, diskPath, directory } = await machines.boot();
        expect((await guest.health()).generation).toBe(0);
        await shellIn(guest, 'echo kept > /dev/shm/file');
        await guest[Symbol.asyncDispose]();
        await vmm.pause();
        const taken = await machines.capture({ guest, vmm, diskPath, directory });
        await vmm.destroy();
        const copy = await machines.restore(taken);
        expect(await shellIn(copy.guest, 'cat /dev/shm/file')).toBe('kept\n');
      });

      it('ends the VMM when the kernel panics, and the console says why', async () => {
        const directory = await machines.newDirectory();
        const initramfsPath = join(directory, 'no-initramfs');
        const consolePath = join(directory, 'console.log');
        await writeFile(initramfsPath, 'no initramfs');
        const { vmm } = await machines.boot({ directory, initramfsPath, consolePath });
        await vmm.exited;
        expect(await readFile(consolePath, 'utf8')).toContain('Kernel panic');
      });

      it('fails with the reason and leaves no process when the image is missing', async () => {
        const imagePath = join(machines.directory, 'no-such-image');
        await expect(machines.boot({ imagePath })).rejects.toThrow(/no-such-image/);
      });
    });

    describe('restore', () => {
      it('gives a working VM 20 times in a row', async () => {
        for (let round = 0; round < 20; round++) {
          const machine = await machines.restore();
          const confirmed = await machine.guest.identity(newIdentity(`vm-${round}`));
          expect(confirmed.hostname).toBe(`vm-${round}`);
          expect(await shellIn(machine.guest, 'echo hello; hostname')).toBe(`hello\nvm-${round}\n`);
          await machines.end(machine);
        }
      });

      it('gives 6 at once, none of which sees what another wrote', async () => {
        const all = await Promise.all(Array.from({ length: 6 }, () => machines.restore()));
        await Promise.all(
          all.map(({ guest }, number) =>
            shellIn(
              guest,
              `test ! -e /root/mine && test ! -e /dev/shm/mine && echo ${number} | tee /root/mine /dev/shm/mine`,
            ),
          ),
        );
        const seen = await Promise.all(all.map(({ guest }) => shellIn(guest, 'cat /root/mine /dev/shm/mine')));
        expect(seen).toEqual(all.map((_, number) => `${number}\n${number}\n`));
      });

      it('works in a directory whose path is longer than a socket name may be', async () => {
        const directory = await machines.newDirectory(`${'d'.repeat(120)}/vm`);
        const machine = await machines.restore(undefined, directory);
        expect(await shellIn(machine.guest, 'echo hello')).toBe('hello\n');
        await machine.vmm.pause();
        await machine.vmm.resume();
      });

      it('fails with the reason, soon, and leaves no process when the device state is damaged', async () => {
        const template = await machines.template();
        const devicePath = join(await machines.newDirectory(), 'device');
        await writeFile(devicePath, (await readFile(template.snapshot.devicePath)).subarray(0, 4_000));
        const damaged = { ...template, snapshot: { ...template.snapshot, devicePath } };
        const error = await machines.restore(damaged).catch((each: unknown) => each);
        expect(error).toBeInstanceOf(AppError);
        expect(error).toMatchObject({ code: 'unavailable' });
      }, 20_000);

      it('stops when it is aborted, with no process left', async () => {
        const template = await machines.template();
        // One that is restored before it is seen to be under way came too late to be stopped.
        for (let stopped = false; !stopped; ) {
          const directory = await machines.newDirectory();
          const spec = { ...(await machines.bootSpec(directory)), snapshot: template.snapshot };
          const stop = new AbortController();
          const restoring = machines.driver.restore(spec, stop.signal);
          restoring.catch(() => {});
          while ((await machines.driver.adopt(directory)) === undefined) await sleep(1);
          stop.abort(new Error('not wanted any more'));
          const restored = await restoring.catch((error: unknown) => {
            expect(error).toMatchObject({ message: 'not wanted any more' });
            stopped = true;
          });
          await restored?.destroy();
          expect(await machines.driver.adopt(directory)).toBeUndefined();
        }
      });
    });

    describe('pause and resume', () => {
      it('leaves a guest that answers at once, 50 times', async () => {
        const { guest, vmm } = await machines.restore();
        await guest.health();
        const answersMs: number[] = [];
        for (let round = 0; round < 50; round++) {
          await vmm.pause();
          await vmm.resume();
          const from = performance.now();
          await guest.health(AbortSignal.timeout(ANSWERS_WITHIN_MS));
          answersMs.push(performance.now() - from);
        }
        answersMs.sort((one, other) => one - other);
        expect(answersMs[47]).toBeLessThan(500);
        expect(await shellIn(guest, 'echo still here')).toBe('still here\n');
      });

      it('stops the guest in between', async () => {
        const { guest, vmm } = await machines.restore();
        await shellIn(guest, '(while :; do echo >> /dev/shm/ticks; sleep 0.05; done) > /dev/null 2>&1 &');
        const ticks = async () => Number(await shellIn(guest, 'wc -l < /dev/shm/ticks'));
        await shellIn(guest, 'until test -s /dev/shm/ticks; do sleep 0.01; done');
        await vmm.pause();
        await expect(guest.health(AbortSignal.timeout(300))).rejects.toThrow();
        await sleep(2_000);
        await vmm.resume();
        const after = await ticks();
        await sleep(500);
        expect(await ticks()).toBeGreaterThan(after);
        expect(after).toBeLessThan(40);
      });

      it('is harmless when it is so already', async () => {
        const { guest, vmm } = await machines.restore();
        await vmm.resume();
        await vmm.pause();
        await vmm.pause();
        await vmm.resume();
        expect(await shellIn(guest, 'echo hello')).toBe('hello\n');
      });
    });

    describe('capture', () => {
      it('carries a tmpfs file and a running loop over, and leaves the source unharmed', async () => {
        const source = await machines.restore();
        await shellIn(
          source.guest,
          'head -c 1000000 /dev/urandom > /dev/shm/file; (while :; do sleep 0.1; echo >> /dev/shm/ticks; done) > /dev/null 2>&1 &',
        );
        const sum = await shellIn(source.guest, 'sha256sum < /dev/shm/file');
        await source.vmm.pause();
        const taken = await machines.capture(source);
        await source.vmm.resume();
        expect(await shellIn(source.guest, 'sha256sum < /dev/shm/file')).toBe(sum);
        await shellIn(source.guest, 'echo changed > /dev/shm/file; sync');
        await machines.end(source);
        await rm(source.directory, { recursive: true });

        const copy = await machines.restore(taken);
        expect(await shellIn(copy.guest, 'sha256sum < /dev/shm/file')).toBe(sum);
        const ticks = async () => Number(await shellIn(copy.guest, 'wc -l < /dev/shm/ticks'));
        const before = await ticks();
        await sleep(1_000);
        expect(await ticks()).toBeGreaterThan(before);
      });

      it('can be taken of a copy of a copy of a copy', async () => {
        let from: Parameters<typeof machines.restore>[0];
        for (let generation = 1; generation <= 4; generation++) {
          const machine = await machines.restore(from);
          await shellIn(machine.guest, `echo ${generation} >> /root/disk; echo ${generation} >> /dev/shm/memory; sync`);
          await machine.vmm.pause();
          from = await machines.capture(machine);
          await machines.end(machine);
        }
        const last = await machines.restore(from);
        expect(await shellIn(last.guest, 'cat /root/disk /dev/shm/memory')).toBe('1\n2\n3\n4\n1\n2\n3\n4\n');
        await runIn(last.guest, ['true']);
      });

      it('is what a VM on memory of its own has in place of a snapshot', async () => {
        const { vmm, guest } = await machines.restore();
        const directory = await machines.newDirectory();
        const files = { memoryPath: join(directory, 'memory'), devicePath: join(directory, 'device') };
        await vmm.pause();
        await expect(vmm.snapshot(files)).rejects.toMatchObject({ code: 'conflict' });
        expect(await readdir(directory)).toEqual([]);
        await vmm.resume();
        expect(await shellIn(guest, 'echo hello')).toBe('hello\n');
      });

      it('is refused while the VM runs', async () => {
        const machine = await machines.restore();
        await expect(machines.capture(machine)).rejects.toMatchObject({ code: 'conflict' });
        expect(await shellIn(machine.guest, 'echo hello')).toBe('hello\n');
      });

      it('does not change the files that it was restored from', async () => {
        const template = await machines.template();
        const sum = async () =>
          (await promisify(execFile)('sha256sum', [template.snapshot.memoryPath, template.diskPath])).stdout;
        const before = await sum();
        const machine = await machines.restore();
        await shellIn(machine.guest, 'head -c 1000000 /dev/urandom | tee /dev/shm/file > /root/file; sync');
        await machine.vmm.pause();
        await machines.capture(machine);
        await machines.end(machine);
        expect(await sum()).toBe(before);
      });

      it('holds what is zero as well as what is not', async () => {
        const bytes = 4_000_000;
        const source = await machines.restore();
        await shellIn(source.guest, `yes | head -c ${bytes} > /dev/shm/file`);
        await source.vmm.pause();
        const full = await machines.capture(source);
        await source.vmm.resume();
        const copy = await machines.restore(full);
        await shellIn(copy.guest, `head -c ${bytes} /dev/zero | dd of=/dev/shm/file conv=notrunc status=none`);
        await copy.vmm.pause();
        const zeroed = await machines.restore(await machines.capture(copy));
        expect(await shellIn(zeroed.guest, `wc -c < /dev/shm/file; tr -d '\\0' < /dev/shm/file | wc -c`)).toBe(
          `${bytes}\n0\n`,
        );
      });

      it('leaves a guest that answers, 50 times, and the last of them can be restored', async () => {
        const machine = await machines.restore();
        let last: Awaited<ReturnType<typeof machines.capture>> | undefined;
        for (let round = 1; round <= 50; round++) {
          await machine.vmm.pause();
          last = await machines.capture(machine);
          await machine.vmm.resume();
          await machine.guest.health(AbortSignal.timeout(ANSWERS_WITHIN_MS));
          await shellIn(machine.guest, `echo ${round} >> /dev/shm/rounds`);
        }
        expect(await shellIn(machine.guest, 'tail -1 /dev/shm/rounds')).toBe('50\n');
        const copy = await machines.restore(last);
        expect(await shellIn(copy.guest, 'seq 49 | cmp - /dev/shm/rounds && echo same')).toBe('same\n');
      });

      it('is whole when it is taken 5 times in a row of a VM that goes on, each restored beside it', async () => {
        const source = await machines.restore();
        for (let round = 1; round <= 5; round++) {
          await shellIn(source.guest, `echo ${round} >> /dev/shm/rounds`);
          await source.vmm.pause();
          const taken = await machines.capture(source);
          await source.vmm.resume();
          const copy = await machines.restore(taken);
          expect(await shellIn(copy.guest, `seq ${round} | cmp - /dev/shm/rounds && echo same`)).toBe('same\n');
          await machines.end(copy);
        }
      });

      it('is refused, and the VM not started, when a layer is damaged', async () => {
        const source = await machines.restore();
        await source.vmm.pause();
        const taken = await machines.capture(source);
        const [layerPath = ''] = taken.snapshot.layerPaths ?? [];
        await truncate(layerPath, 100_000);
        await expect(machines.restore(taken)).rejects.toMatchObject({ code: 'integrity_error' });
      });

      it('stops when it is aborted, and the VM goes on', async () => {
        const machine = await machines.restore();
        const directory = await machines.newDirectory();
        const files = {
          memoryPath: join(directory, 'memory'),
          devicePath: join(directory, 'device'),
          layerPath: join(directory, 'layer'),
        };
        await machine.vmm.pause();
        const stopped = machine.vmm.capture(files, AbortSignal.abort(new Error('not wanted any more')));
        await expect(stopped).rejects.toThrow('not wanted any more');
        await expect(stat(files.layerPath)).rejects.toMatchObject({ code: 'ENOENT' });
        await machine.vmm.resume();
        expect(await shellIn(machine.guest, 'echo hello')).toBe('hello\n');
      });
    });

    describe('destroy', () => {
      it('ends a VMM that is stopped, and once is as good as often', async () => {
        const { vmm } = await machines.restore();
        process.kill(vmm.pid, 'SIGSTOP');
        await Promise.all([vmm.destroy(), vmm.destroy()]);
        await vmm.destroy();
        expect(await isRunning(vmm)).toBe(false);
        expect(await vmm.exited).toMatchObject({ signal: 'SIGKILL' });
      });

      it('ends a paused VM', async () => {
        const { vmm } = await machines.restore();
        await vmm.pause();
        await vmm.destroy();
        expect(await isRunning(vmm)).toBe(false);
      });
    });

    describe('a VMM that dies', () => {
      it('is reported as exited, and every call to its guest as vm_lost, within seconds', async () => {
        const { guest, vmm } = await machines.restore();
        const sleeping = runIn(guest, ['sleep', '600']);
        sleeping.catch(() => {});
        await guest.health();
        process.kill(vmm.pid, 'SIGKILL');
        await expect(sleeping).rejects.toMatchObject({ code: 'vm_lost' });
        await expect(guest.health()).rejects.toMatchObject({ code: 'vm_lost' });
        await expect(vmm.pause()).rejects.toMatchObject({ code: 'vm_lost' });
        expect(await vmm.exited).toMatchObject({ signal: reportsHowItEnded ? 'SIGKILL' : null });
      }, 10_000);

      it('is reported when the guest turns itself off', async () => {
        const { guest, vmm } = await machines.restore();
        const off = runIn(guest, ['sh', '-c', `echo ${offKey} > /proc/sysrq-trigger; sleep 60`]);
        await expect(off).rejects.toMatchObject({ code: 'vm_lost' });
        await vmm.exited;
      });
    });

    describe('adopt', () => {
      it('finds the VM of a process that is gone, which can then do everything', async () => {
        const template = await machines.template();
        const directory = await machines.newDirectory();
        const spec = { ...(await machines.bootSpec(directory)), snapshot: template.snapshot };
        const script = `${openDriverScript}
          const driver = await openDriver(${JSON.stringify({ dataDirectory: testDataDirectory, kernelPath: spec.kernelPath })});
          const vmm = await driver.restore(${JSON.stringify(spec)});
          process.stdout.write(String(vmm.pid), () => process.exit(0));`;
        const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', script]);
        const vmm = await machines.driver.adopt(directory);
        expect(vmm?.pid).toBe(Number(stdout));
        if (vmm === undefined) return;
        await vmm.pause();
        await vmm.resume();
        await vmm.destroy();
        await vmm.exited;
        expect(await isRunning(vmm)).toBe(false);
        expect(await machines.driver.adopt(directory)).toBeUndefined();
      });

      it('notices soon that an adopted VM has died', async () => {
        const { directory, vmm } = await machines.restore();
        const adopted = await machines.driver.adopt(directory);
        process.kill(vmm.pid, 'SIGKILL');
        await adopted?.exited;
        expect(adopted?.pid).toBe(vmm.pid);
      }, 5_000);

      it('finds a VM whose starter died before it wrote down which process it is', async () => {
        const { directory, vmm } = await machines.restore();
        await rm(join(directory, identityFile));
        const adopted = await machines.driver.adopt(directory);
        expect(adopted?.pid).toBe(vmm.pid);
        await adopted?.destroy();
        expect(await isRunning(vmm)).toBe(false);
      });

      it('never takes another process for the VM, whatever its number', async () => {
        const { directory, vmm } = await machines.restore();
        const written = await readFile(join(directory, identityFile), 'utf8');
        const other = await machines.newDirectory();
        const changed = JSON.stringify({ ...JSON.parse(written), startTicks: '1' });
        await writeFile(join(other, identityFile), changed);
        expect(await machines.driver.adopt(other)).toBeUndefined();
        const ours = JSON.stringify({ ...JSON.parse(written), pid: process.pid });
        await writeFile(join(other, identityFile), ours);
        expect(await machines.driver.adopt(other)).toBeUndefined();
        expect(await isRunning(vmm)).toBe(true);
      });

      it('finds nothing in a directory that is empty or not there', async () => {
        expect(await machines.driver.adopt(await machines.newDirectory())).toBeUndefined();
        expect(await machines.driver.adopt(join(machines.directory, 'nowhere'))).toBeUndefined();
      });

      it('does not wait for a VMM that is stopped', async () => {
        const { directory, vmm } = await machines.restore();
        process.kill(vmm.pid, 'SIGSTOP');
        const from = performance.now();
        const adopted = await machines.driver.adopt(directory);
        expect(performance.now() - from).toBeLessThan(1_000);
        await adopted?.destroy();
        expect(await isRunning(vmm)).toBe(false);
      });
    });

    it('bounds what the VMM writes to its log', async () => {
      const { directory, vmm } = await machines.restore();
      const log = await open(join(directory, 'vmm.log'), 'a');
      await log.write(Buffer.alloc(3_000_000, 'x'));
      await log.close();
      const size = async () => (await readFile(join(directory, 'vmm.log'))).length;
      await expect.poll(size, { timeout: 15_000 }).toBeLessThan(100_000);
      await vmm.destroy();
      expect((await vmm.exited).logTail.length).toBeLessThanOrEqual(4_096);
    });

    it('makes its directory its own: another VM in it is refused', async () => {
      const { directory } = await machines.restore();
      await mkdir(directory, { recursive: true });
      const template = await machines.template();
      const spec = {
        ...(await machines.bootSpec(await machines.newDirectory())),
        directory,
        snapshot: template.snapshot,
      };
      await expect(machines.driver.restore(spec)).rejects.toThrow();
    });
  });
}

async function isRunning(vmm: Vmm): Promise<boolean> {
  return (await runningProcesses()).some(({ pid }) => pid === vmm.pid);
}
