/** The writable disk of a running guest: frozen under load, copied, and booted from anew. */

import { execFile } from 'node:child_process';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { newId } from '@fuse/runtime';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { copyWritableDisk } from '../vmm/machine-disk.ts';
import { openQemuDriver } from '../vmm/qemu/qemu-driver.ts';
import { newIdentity, runIn, shellIn, type TestMachine, TestMachines } from '../vmm/test-machines.ts';

const run = promisify(execFile);
let machines: TestMachines;
beforeAll(async () => {
  machines = await TestMachines.open(openQemuDriver);
});
afterEach(() => machines.endAll());
afterAll(() => machines?.[Symbol.asyncDispose]());

async function started(hostname = 'source'): Promise<TestMachine> {
  const machine = await machines.restore();
  await machine.guest.identity(newIdentity(hostname));
  return machine;
}

/** Small files and a database, written without end; `/dev/shm/rounds` counts. */
const load = `
import os, sqlite3
db = sqlite3.connect("/workspace/load.db"); db.execute("pragma journal_mode=wal"); db.execute("create table t(n)")
n = 0
while True:
    n += 1
    with open(f"/workspace/files/{n % 500}", "wb") as f: f.write(os.urandom(20000))
    if n % 10 == 0: db.execute("insert into t values (?)", (n,)); db.commit()
    if n % 7 == 0: os.rename(f"/workspace/files/{n % 500}", f"/workspace/files/moved-{n % 50}")
    open("/dev/shm/rounds", "w").write(f"{n}\\n")
`;

async function startLoad({ guest }: TestMachine): Promise<void> {
  await guest.writeFile({ path: '/workspace/load.py' }, Buffer.from(load));
  await shellIn(guest, 'mkdir /workspace/files; cd /workspace; setsid python3 load.py >load.log 2>&1 </dev/null &');
}

const rounds = async ({ guest }: TestMachine) => Number(await shellIn(guest, 'cat /dev/shm/rounds || echo 0'));

async function goesOn(machine: TestMachine): Promise<void> {
  const from = await rounds(machine);
  await expect.poll(() => rounds(machine), { timeout: 60_000 }).toBeGreaterThan(from + 20);
}

async function copyDisk(machine: TestMachine): Promise<string> {
  const directory = await machines.newDirectory(newId('copy'));
  await mkdir(directory, { recursive: true });
  const path = join(directory, 'disk.img');
  await copyWritableDisk(machine.diskPath, path);
  return path;
}

async function bootFrom(diskPath: string): Promise<TestMachine> {
  const machine = await machines.boot({ writableDiskPath: diskPath });
  await machine.guest.health(AbortSignal.timeout(90_000));
  return machine;
}

const checkDisk = (path: string) => run('/sbin/e2fsck', ['-fn', path]);

/** Writes of processes that wait for a thaw end then. */
async function write(machine: TestMachine, name: string): Promise<string> {
  return shellIn(machine.guest, `echo x >/workspace/${name}; cat /workspace/${name}`);
}

describe('a frozen disk', { timeout: 300_000 }, () => {
  it('holds still and whole under write load, while the guest answers and runs commands, and goes on after it', async () => {
    const machine = await started();
    await startLoad(machine);
    for (let round = 0; round < 5; round++) {
      await goesOn(machine);
      await machine.guest.freeze(30_000, AbortSignal.timeout(60_000));
      const before = await rounds(machine);
      const copy = await copyDisk(machine);
      expect(await rounds(machine)).toBeLessThanOrEqual(before + 1);
      await machine.guest.thaw();
      await checkDisk(copy);
    }
    await goesOn(machine);
    expect(await shellIn(machine.guest, 'cat /workspace/load.log')).toBe('');
  });

  it('takes what waited once it is thawed, however often one asks', async () => {
    const machine = await started();
    await machine.guest.freeze(20_000);
    await machine.guest.freeze(50_000);
    let done = false;
    const waiting = write(machine, 'waited').finally(() => {
      done = true;
    });
    expect((await runIn(machine.guest, ['sh', '-c', 'cat /workspace/waited'])).stdout.toString()).toBe('');
    const upload = machine.guest.writeFile({ path: '/workspace/uploaded' }, Buffer.alloc(300_000));
    await machine.guest.sync();
    await machine.guest.health();
    expect(done).toBe(false);
    await machine.guest.thaw();
    await machine.guest.thaw();
    expect(await waiting).toBe('x\n');
    expect((await upload).size_bytes).toBe(300_000);
  });

  it('thaws by itself', async () => {
    const machine = await started();
    await machine.guest.freeze(500);
    expect(await write(machine, 'a')).toBe('x\n');
  });

  it.each([0, 61_000])('is refused a deadline of %i ms', async (deadlineMs) => {
    await expect((await started()).guest.freeze(deadlineMs)).rejects.toMatchObject({ code: 'invalid_argument' });
  });

  it('thaws by itself in a machine that was restored from a snapshot of the frozen one, and when that gets its identity', async () => {
    const source = await started();
    const capture = async () => {
      await source.vmm.pause();
      const snapshot = await machines.capture(source);
      await source.vmm.resume();
      return snapshot;
    };
    await source.guest.freeze(4_000);
    const short = await machines.restore(await capture());
    expect(await write(short, 'a')).toBe('x\n');
    await source.guest.freeze(60_000);
    const long = await machines.restore(await capture());
    await long.guest.identity(newIdentity('other'));
    expect(await write(long, 'b')).toBe('x\n');
  });

  it('takes a new identity when there is not a byte left on it', async () => {
    const machine = await started();
    await shellIn(
      machine.guest,
      'cd /workspace; fallocate -l $(($(df --output=avail -B1 . | tail -1) - 65536)) big; dd if=/dev/zero of=rest bs=4k 2>/dev/null || true',
    );
    expect((await runIn(machine.guest, ['sh', '-c', 'echo x >/workspace/y'])).exit.exit_code).not.toBe(0);
    await machine.guest.identity({ ...newIdentity('a-longer-name-than-before'), hooks_deadline_ms: 1_000 });
    expect(await shellIn(machine.guest, 'hostname; cat /etc/hostname')).toBe('a-longer-name-than-before\n'.repeat(2));
    await machine.guest.freeze(10_000);
    await machine.guest.thaw();
  });
});

describe('a machine that boots from a used disk', { timeout: 300_000 }, () => {
  it('of a frozen one has everything that was on it, and is a machine of its own', async () => {
    const source = await started();
    await startLoad(source);
    await shellIn(
      source.guest,
      "echo kept >/workspace/kept; echo '10.1.2.3 db' >>/etc/hosts; echo t >/tmp/t; rm /etc/issue",
    );
    await goesOn(source);
    await source.guest.freeze(60_000, AbortSignal.timeout(60_000));
    const disk = await copyDisk(source);
    const machineId = await shellIn(source.guest, 'cat /etc/machine-id');
    await source.guest.thaw();
    await machines.end(source);
    const machine = await bootFrom(disk);
    expect(await shellIn(machine.guest, 'cat /etc/machine-id')).not.toBe(machineId);
    const identity = newIdentity('booted');
    await machine.guest.identity(identity);
    expect(await shellIn(machine.guest, 'cat /etc/machine-id')).toBe(`${identity.machine_id}\n`);
    expect(await shellIn(machine.guest, 'cat /workspace/kept /tmp/t; ls /etc/issue || true')).toBe('kept\nt\n');
    const hosts = await shellIn(machine.guest, 'cat /etc/hosts');
    expect(hosts).toMatch(/^10\.1\.2\.3 db$/m);
    expect(hosts).toMatch(/^127\.0\.1\.1\tbooted$/m);
    expect(hosts).not.toContain('source');
    expect(await shellIn(machine.guest, 'sqlite3 /workspace/load.db "pragma integrity_check"; ls /dev/shm')).toBe(
      'ok\n',
    );
  });

  it('of one that was cut off under load has what was flushed, once its journal is played', async () => {
    const source = await started();
    await startLoad(source);
    await goesOn(source);
    await shellIn(source.guest, 'echo flushed >/workspace/kept');
    await source.guest.sync();
    await goesOn(source);
    await source.vmm.pause();
    const disk = await copyDisk(source);
    await machines.end(source);
    const machine = await bootFrom(disk);
    await machine.guest.identity(newIdentity('booted'));
    expect(
      await shellIn(machine.guest, 'cat /workspace/kept; sqlite3 /workspace/load.db "pragma integrity_check"'),
    ).toBe('flushed\nok\n');
    expect(await write(machine, 'new')).toBe('x\n');
    await machine.guest.freeze(30_000);
    await checkDisk(await copyDisk(machine));
  });
});
