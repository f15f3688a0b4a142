import { createHash, randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import { FrameParser, frameType } from '@fuse/contract';
import { newId } from '@fuse/runtime';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { openQemuDriver } from '../vmm/qemu/qemu-driver.ts';
import { collect, newIdentity, runIn, shellIn, type TestMachine, TestMachines } from '../vmm/test-machines.ts';
import type { Guest } from './guest.ts';

let machines: TestMachines;
let machine: TestMachine;
let guest: Guest;

beforeAll(async () => {
  machines = await TestMachines.open(openQemuDriver);
  await machines.template();
});
beforeEach(async () => {
  machine = await machines.restore();
  guest = machine.guest;
});
afterEach(() => machines.endAll());
afterAll(() => machines?.[Symbol.asyncDispose]());

const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

describe('the channel', () => {
  it('connects again after each of 30 cuts, and calls made meanwhile wait for it', async () => {
    await guest.health();
    for (let round = 0; round < 30; round++) {
      const taken = await machine.vmm.openGuestChannel();
      taken.on('error', () => {});
      taken.destroy();
      expect((await guest.health(AbortSignal.timeout(20_000))).protocol).toBe(1);
    }
  });

  it('serves 100 calls in a row and 50 at once', async () => {
    for (let call = 0; call < 100; call++) await guest.health();
    const answers = await Promise.all(Array.from({ length: 50 }, () => guest.health()));
    expect(new Set(answers.map(({ boot_id }) => boot_id)).size).toBe(1);
  });

  it('lets a call that waits for a paused VM go when its caller wants to, and works on after it', async () => {
    await guest.health();
    await machine.vmm.pause();
    await expect(guest.health(AbortSignal.timeout(200))).rejects.toMatchObject({ name: 'TimeoutError' });
    await machine.vmm.resume();
    expect((await guest.health()).protocol).toBe(1);
  });
});

describe('identity', () => {
  it('gives the guest its names and the time', async () => {
    const identity = newIdentity('somebody');
    const confirmed = await guest.identity(identity);
    expect(confirmed).toMatchObject({ hostname: 'somebody', generation: identity.generation });
    expect(await shellIn(guest, 'hostname; cat /etc/machine-id')).toBe(`somebody\n${identity.machine_id}\n`);
    const guestSeconds = Number(await shellIn(guest, 'date +%s'));
    expect(Math.abs(guestSeconds - Date.now() / 1_000)).toBeLessThan(2);
  });
});

describe('exec', () => {
  it('gives both streams, the exit code, and the end of one killed by a signal', async () => {
    const { stdout, stderr, exit } = await runIn(guest, ['sh', '-c', 'echo out; echo err >&2; exit 3']);
    expect([stdout.toString(), stderr.toString(), exit.exit_code]).toEqual(['out\n', 'err\n', 3]);
    const killed = await runIn(guest, ['sh', '-c', 'kill -TERM $$']);
    expect(killed.exit.exit_code).toBe(143);
  });

  it('brings 8 MiB of random bytes on stdin through a program and back', async () => {
    const bytes = randomBytes(8 * 1024 * 1024);
    const conversation = await guest.exec(newId('x'), { spec: { argv: ['cat'], stdin: true } });
    const sending = (async () => {
      for (let at = 0; at < bytes.length; at += 100_000)
        await conversation.writeStdin(bytes.subarray(at, at + 100_000));
      conversation.endStdin();
    })();
    const { stdout, exit } = await collect(conversation);
    await sending;
    expect(exit.exit_code).toBe(0);
    expect(sha256(stdout)).toBe(sha256(bytes));
  });

  it('goes on from an offset on a new channel, without a byte lost or twice', async () => {
    const id = newId('x');
    const script = 'i=0; while [ $i -lt 200 ]; do echo line $i; i=$((i+1)); sleep 0.01; done';
    const first = await guest.exec(id, { spec: { argv: ['sh', '-c', script], stdin: false } });
    const received: Uint8Array[] = [];
    let offset = 0;
    const cut = (async () => {
      for await (const chunk of first.frames) {
        received.push(chunk);
        offset += chunk.length;
        if (offset > 500) break;
      }
    })();
    await cut;
    (await machine.vmm.openGuestChannel()).destroy();
    const second = await guest.exec(id, { offset });
    for await (const chunk of second.frames) received.push(chunk);
    const frames = [...new FrameParser().push(Buffer.concat(received))];
    const text = Buffer.concat(frames.filter(({ type }) => type === frameType.stdout).map(({ payload }) => payload));
    expect(text.toString()).toBe(Array.from({ length: 200 }, (_, line) => `line ${line}\n`).join(''));
    expect(frames.at(-1)?.type).toBe(frameType.exit);
  });

  it('refuses an offset below the acknowledged one, and an exec that it does not know', async () => {
    const id = newId('x');
    await collect(await guest.exec(id, { spec: { argv: ['echo', 'hello'], stdin: false } }));
    expect((await guest.execStatus(id)).exit?.exit_code).toBe(0);
    await expect.poll(async () => (await guest.execStatus(id)).offset_acked).toBeGreaterThan(0);
    await expect(guest.exec(id, { offset: 0 })).rejects.toMatchObject({ code: 'conflict' });
    await expect(guest.exec('unknown', {})).rejects.toMatchObject({ code: 'not_found' });
    await expect(guest.execStatus('unknown')).rejects.toMatchObject({ code: 'not_found' });
  });

  it('says why a program cannot be started', async () => {
    await expect(runIn(guest, ['no-such-program'])).rejects.toMatchObject({
      code: 'invalid_argument',
      details: { reason: 'exec_failed' },
    });
  });

  it('that is killed ends its conversation, and its processes', async () => {
    const id = newId('x');
    const conversation = await guest.exec(id, { spec: { argv: ['sh', '-c', 'sleep 601 & sleep 602'], stdin: false } });
    const ending = collect(conversation).then(
      () => 'ended',
      (error: Error) => error.message,
    );
    await guest.killExec(id);
    expect(await ending).toBeTypeOf('string');
    await guest.killExec(id);
    const left = await runIn(guest, ['pgrep', '-f', '^sleep 60']);
    expect(left.stdout.toString()).toBe('');
  });

  it('passes signals on', async () => {
    const script = 'trap "echo got it; exit 7" USR1; echo ready; while :; do sleep 0.05; done';
    const conversation = await guest.exec(newId('x'), { spec: { argv: ['sh', '-c', script], stdin: false } });
    setTimeout(() => conversation.signal('SIGUSR1'), 1_000);
    const { stdout, exit } = await collect(conversation);
    expect(stdout.toString()).toBe('ready\ngot it\n');
    expect(exit.exit_code).toBe(7);
  });
});

describe('files', () => {
  it.each([0, 1, 65_535, 65_536, 65_537, 5_000_000])('of %i bytes arrive and come back as they are', async (size) => {
    const bytes = randomBytes(size);
    const written = await guest.writeFile({ path: '/workspace/a file', mode: '640' }, bytes);
    expect(written).toEqual({ size_bytes: size, sha256: sha256(bytes) });
    const { sizeBytes, body } = await guest.readFile('/workspace/a file');
    expect(sizeBytes).toBe(size);
    expect(sha256(Buffer.concat(await body.toArray()))).toBe(sha256(bytes));
  });

  it('are streamed from a source, with owner and mode', async () => {
    const parts = Array.from({ length: 50 }, () => randomBytes(20_000));
    await guest.writeFile(
      { path: '/workspace/-n "odd" $(name)\n', mode: '4751', uid: 12, gid: 34 },
      Readable.from(parts),
    );
    expect(await shellIn(guest, 'cd /workspace; stat -c "%a %u %g %s" -- ./-n*')).toBe('4751 12 34 1000000\n');
  });

  it('whose sum is wrong, or that the source does not finish, leave nothing', async () => {
    const wrong = guest.writeFile({ path: '/workspace/f', sha256: '0'.repeat(64) }, Buffer.from('x'));
    await expect(wrong).rejects.toMatchObject({ code: 'invalid_argument' });
    const broken = Readable.from(
      (async function* () {
        yield Buffer.alloc(100_000);
        throw new Error('source broke');
      })(),
    );
    await expect(guest.writeFile({ path: '/workspace/f' }, broken)).rejects.toThrow('source broke');
    expect(await shellIn(guest, 'ls -A /workspace')).toBe('');
  });

  it('that are not there, are a directory or a link are refused by name', async () => {
    await shellIn(guest, 'ln -s /etc/passwd /workspace/link; mkdir /workspace/directory');
    await expect(guest.readFile('/workspace/none')).rejects.toMatchObject({ code: 'not_found' });
    await expect(guest.readFile('/workspace/directory')).rejects.toMatchObject({ code: 'conflict' });
    await expect(guest.readFile('/workspace/link')).rejects.toMatchObject({ code: 'conflict' });
  });

  it('are found by globs', async () => {
    await shellIn(
      guest,
      'cd /workspace; mkdir -p a/b; echo 1 > a/one.txt; echo 2 > a/b/two.txt; ln -s /etc/passwd a/link.txt',
    );
    const found = await guest.glob({ cwd: '/workspace', patterns: ['**/*.txt'], max_files: 10 });
    expect(found.files.map(({ path }) => path).sort()).toEqual(['a/b/two.txt', 'a/one.txt']);
    expect(found.skipped).toEqual([{ path: 'a/link.txt', reason: 'symlink' }]);
  });

  it('survive sync', async () => {
    await shellIn(guest, 'echo x > /workspace/x');
    await guest.sync();
  });
});
