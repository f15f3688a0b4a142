/** Machines restored from a snapshot of a running one: each is a new machine, and what ran goes on in it. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { openQemuDriver } from '../vmm/qemu/qemu-driver.ts';
import { newIdentity, runIn, shellIn, type TestMachine, TestMachines, testLog } from '../vmm/test-machines.ts';
import { handOver } from './hand-over.ts';

let machines: TestMachines;
beforeAll(async () => {
  machines = await TestMachines.open(openQemuDriver);
});
afterEach(() => machines.endAll());
afterAll(() => machines?.[Symbol.asyncDispose]());

type Snapshot = Awaited<ReturnType<TestMachines['capture']>>;
const signal = () => AbortSignal.timeout(120_000);

async function handedOver(machine: TestMachine, hostname: string): Promise<TestMachine> {
  await handOver(machine.guest, { hostname, previousGeneration: 0, reason: 'fork', log: testLog }, signal());
  return machine;
}

const started = async (hostname: string) => handedOver(await machines.restore(), hostname);

async function snapshotOf(machine: TestMachine): Promise<Snapshot> {
  await machine.vmm.pause();
  try {
    return await machines.capture(machine);
  } finally {
    await machine.vmm.resume();
  }
}

/** Runs on whatever happens to its channel, as a user's own program would. */
async function startLife(machine: TestMachine): Promise<void> {
  await machine.guest.writeFile({ path: '/workspace/life.py' }, Buffer.from(life));
  await shellIn(machine.guest, 'cd /workspace && setsid python3 life.py >life.log 2>&1 </dev/null &');
  await expect.poll(async () => (await lifeOf(machine)).count ?? 0, { timeout: 60_000 }).toBeGreaterThan(5);
}

const life = `
import json, os, socket, sqlite3, threading, time
def echo(server):
    peer, _ = server.accept()
    while data := peer.recv(64): peer.sendall(data)
server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=echo, args=(server,), daemon=True).start()
client = socket.create_connection(server.getsockname())
deleted = open("/workspace/deleted", "w+b"); os.unlink("/workspace/deleted")
open("/dev/shm/kept", "w").write("on tmpfs")
db = sqlite3.connect("/workspace/life.db"); db.execute("pragma journal_mode=wal"); db.execute("create table t(n)")
count, last = 0, 0
while True:
    now = (time.monotonic_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME))
    assert last == 0 or (now[0] >= last[0] and now[1] >= last[1]), "time went back"
    last = now; count += 1
    client.sendall(b"%08d" % count); assert client.recv(8) == b"%08d" % count
    db.execute("insert into t values (?)", (count,)); db.commit()
    deleted.write(b"%08d" % count); deleted.flush()
    status = {"pid": os.getpid(), "count": count, "rows": db.execute("select count(*) from t").fetchone()[0],
      "deleted": os.fstat(deleted.fileno()).st_size, "random": os.urandom(16).hex(), "monotonic": now[0]}
    open("/dev/shm/status.new", "w").write(json.dumps(status)); os.rename("/dev/shm/status.new", "/dev/shm/status")
    time.sleep(0.2)
`;

interface Life {
  pid: number;
  count: number;
  rows: number;
  deleted: number;
  random: string;
  monotonic: number;
}

async function lifeOf(machine: TestMachine): Promise<Partial<Life>> {
  const text = await shellIn(machine.guest, 'cat /dev/shm/status || echo {}');
  return JSON.parse(text);
}

/** Once it has counted on, with what it wrote all there. */
async function livesOn(machine: TestMachine, since: Partial<Life>): Promise<Partial<Life>> {
  let now: Partial<Life> = {};
  const countedOn = async () => {
    now = await lifeOf(machine);
    return now.count ?? 0;
  };
  await expect.poll(countedOn, { timeout: 60_000 }).toBeGreaterThan((since.count ?? 0) + 3);
  expect(now).toMatchObject({ pid: since.pid, rows: now.count, deleted: (now.count ?? 0) * 8 });
  expect(now.monotonic).toBeGreaterThanOrEqual(since.monotonic ?? Number.NaN);
  return now;
}

const randomness = [
  'cat /proc/sys/kernel/random/boot_id /proc/sys/kernel/random/uuid /etc/machine-id',
  'hostname',
  'head -c 16 /dev/urandom | od -An -tx1',
  "python3 -c 'import os, uuid; print(os.urandom(16).hex()); print(uuid.uuid4()); print(os.getrandom(16).hex())'",
].join('\n');

async function clockErrorMs(machine: TestMachine): Promise<number> {
  const before = Date.now();
  const guest = Number(await shellIn(machine.guest, 'date +%s%3N'));
  const after = Date.now();
  return Math.max(before - guest, guest - after, 0);
}

describe('twenty machines restored from one snapshot of a running, used one', { timeout: 300_000 }, () => {
  it('are twenty different ones whose clocks are right, and what ran goes on in each', async () => {
    const source = await started('source');
    await startLife(source);
    await shellIn(source.guest, `echo '10.1.2.3 db' >>/etc/hosts; ${randomness}`);
    const at = await lifeOf(source);
    const snapshot = await snapshotOf(source);
    const { generation } = await source.guest.health();
    const fingerprints = [(await shellIn(source.guest, randomness)).split('\n')];
    const lives = [(await livesOn(source, at)).random];
    for (let batch = 0; batch < 5; batch++) {
      const forks = await Promise.all(
        [0, 1, 2, 3].map(async (n) => {
          const fork = await handedOver(await machines.restore(snapshot), `fork-${batch}-${n}`);
          expect(await clockErrorMs(fork)).toBeLessThan(500);
          fingerprints.push((await shellIn(fork.guest, randomness)).split('\n'));
          lives.push((await livesOn(fork, at)).random);
          expect(Number(await shellIn(fork.guest, 'cat /run/fuse/generation'))).toBeGreaterThan(generation);
          const hosts = await shellIn(fork.guest, 'cat /etc/hosts; getent hosts $(hostname) | cut -d" " -f1');
          expect(hosts).toMatch(/\n10\.1\.2\.3 db\n/);
          expect(hosts.split(`fork-${batch}-${n}`).length).toBe(2);
          expect(hosts).not.toContain('source');
          return fork;
        }),
      );
      for (const fork of forks) await machines.end(fork);
    }
    for (let line = 0; line < 8; line++) {
      const values = fingerprints.map((fingerprint) => fingerprint[line]);
      expect(values.every((value) => value !== undefined && value !== '')).toBe(true);
      expect(new Set(values).size, `line ${line}: ${values}`).toBe(21);
    }
    expect(new Set(lives).size).toBe(21);
  });
});

describe('a fork of a fork of a fork', { timeout: 300_000 }, () => {
  it('answers at once, and has its process, connection, database, tmpfs and deleted file', async () => {
    let machine = await started('first');
    await startLife(machine);
    for (const generation of ['second', 'third', 'fourth']) {
      const at = await lifeOf(machine);
      const fork = await handedOver(await machines.restore(await snapshotOf(machine)), generation);
      expect(await shellIn(fork.guest, 'hostname; cat /dev/shm/kept')).toBe(`${generation}\non tmpfs`);
      await livesOn(fork, at);
      await livesOn(machine, at);
      await machines.end(machine);
      machine = fork;
    }
    await shellIn(
      machine.guest,
      'pkill -f "[l]ife.py"; sqlite3 /workspace/life.db "pragma integrity_check" | grep -qx ok',
    );
    expect(await shellIn(machine.guest, 'cat /workspace/life.log')).toBe('');
  });
});

describe('hooks', { timeout: 120_000 }, () => {
  const hook = (name: string, script: string) => ({ path: `/etc/fuse/restored.d/${name}`, script });
  async function withHooks(...hooks: { path: string; script: string }[]): Promise<TestMachine> {
    const machine = await started('hooked');
    for (const { path, script } of hooks)
      await machine.guest.writeFile({ path, mode: '755' }, Buffer.from(`#!/bin/sh\n${script}\n`));
    return machine;
  }

  it('of a restored machine run before it is handed over, with the new identity in force', async () => {
    const source = await withHooks(
      hook(
        '10-note',
        'echo "$FUSE_REASON $FUSE_HOSTNAME $(hostname) $FUSE_GENERATION $(cat /run/fuse/generation)" >/run/noted',
      ),
      hook('20-fails', 'echo no luck; exit 3'),
    );
    const fork = await handedOver(await machines.restore(await snapshotOf(source)), 'fork');
    const { generation } = await fork.guest.health();
    expect(await shellIn(fork.guest, 'cat /run/noted')).toBe(`fork fork fork ${generation} ${generation}\n`);
    expect((await runIn(source.guest, ['cat', '/run/noted'])).exit.exit_code).toBe(1);
  });

  it('are reported; one that hangs is killed with its tree, and the machine answers meanwhile', async () => {
    const { guest } = await withHooks(
      hook('10-fails', 'echo no luck; exit 3'),
      hook('20-hangs', 'echo waiting; setsid sleep 601 & sleep 602'),
      hook('30-late', 'true'),
    );
    const confirming = guest.identity({ ...newIdentity('x'), reason: 'resume', hooks_deadline_ms: 3_000 });
    await guest.health();
    expect((await confirming).hooks).toEqual([
      { name: '10-fails', exit_code: 3, timed_out: false, output: 'no luck\n' },
      { name: '20-hangs', exit_code: 137, timed_out: true, output: 'waiting\n' },
      { name: '30-late', exit_code: 124, timed_out: true, output: expect.any(String) },
    ]);
    expect((await runIn(guest, ['pgrep', '-f', '^sleep 60'])).stdout.toString()).toBe('');
  });
});
