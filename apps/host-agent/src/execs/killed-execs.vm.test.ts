/** The host agent killed in the middle of execs: stdin and output arrive once, and sessions are found again. */
import { createHash, randomBytes } from 'node:crypto';
import type { HostExec } from '@fuse/host-protocol';
import { newId, sleep } from '@fuse/runtime';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CallFailed, streamsOf, TestHost } from '../vms/test-host.ts';
import { TestProgram } from '../vms/test-program.ts';
import { TestConnection } from './test-connection.ts';

let host: TestHost;
let program: TestProgram;
let vm: string;
beforeAll(async () => {
  host = await TestHost.open();
  await host.stop();
  program = new TestProgram(host);
  await program.start();
  vm = (await host.create()).id;
});
afterAll(async () => {
  await host.destroy(vm);
  await program.kill();
  await host.start();
  host.useUrl(host.agent.url);
  await host[Symbol.asyncDispose]();
});

const MOMENTS_MS = [3, 20, 60];
const MIB = 1024 ** 2;
const sum = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

async function killedAfter(momentMs: number): Promise<void> {
  await sleep(momentMs);
  await program.kill();
  await program.start();
}

/** Each time a little later, so that there is progress in between on the slowest machine. */
async function killedOftenUntil(done: () => boolean): Promise<void> {
  for (let round = 1; round <= 5 && !done(); round++) await killedAfter(60 * round);
}

/** Asks again for as long as the host agent is away. */
async function insist<T>(ask: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      if (error instanceof CallFailed && (error.status < 500 || error.code === 'vm_lost')) throw error;
      await sleep(20);
    }
  }
}

describe('a host agent that is killed', () => {
  it.each(MOMENTS_MS)('%i ms into a start with stdin: the command has all of it, once', async (momentMs) => {
    const bytes = randomBytes(3 * MIB);
    const id = newId('x');
    const start = () =>
      host.startExec(
        vm,
        ['sh', '-c', `echo once >> /tmp/${id}; cat`],
        { stdin_base64: bytes.toString('base64'), keep: 'ends', max_log_bytes: 16 * MIB },
        id,
      );
    const started = insist(start);
    await killedAfter(momentMs);
    await started;
    await killedAfter(momentMs);
    const exec = await insist(() => host.endOf(vm, id));
    expect(exec).toMatchObject({ state: 'exited', exit: { exit_code: 0, stdout_bytes: bytes.length } });
    expect(sum(streamsOf(await host.log(vm, id)).stdout)).toBe(sum(bytes));
    expect((await host.shell(vm, `cat /tmp/${id}`)).stdout.toString()).toBe('once\n');
  });

  it('again and again while stdin comes by requests: every byte arrives once', async () => {
    const bytes = randomBytes(12 * MIB);
    const { id } = await host.startExec(vm, ['cat'], {
      stdin_open: true,
      keep: 'ends',
      max_log_bytes: 32 * MIB,
      timeout_ms: 0,
    });
    let done = false;
    const killing = killedOftenUntil(() => done);
    const PIECE = 500_001;
    for (let at = 0; at < bytes.length; at += PIECE) {
      const end = at + PIECE >= bytes.length ? '&end=1' : '';
      await insist(() => host.stdin(vm, id, bytes.subarray(at, at + PIECE), `offset=${at}${end}`)).catch(
        async (error: unknown) => {
          // An earlier try may have closed it although nobody heard of it.
          if (!(error instanceof CallFailed) || error.details.reason !== 'stdin_closed' || end === '') throw error;
        },
      );
    }
    done = true;
    await killing;
    expect(await insist(() => host.endOf(vm, id))).toMatchObject({ exit: { stdout_bytes: bytes.length } });
    expect(sum(streamsOf(await host.log(vm, id)).stdout)).toBe(sum(bytes));
  });

  it('again and again while a log is followed: it goes on at its offset, nothing missing and nothing twice', async () => {
    const script = 'head -c 24000000 /dev/urandom > /tmp/source; sha256sum < /tmp/source; cat /tmp/source';
    const { id } = await host.startExec(vm, ['sh', '-c', script], {
      keep: 'ends',
      max_log_bytes: 2 * MIB,
      hold: { until_followed_ms: 30_000 },
      timeout_ms: 0,
    });
    let done = false;
    const killing = killedOftenUntil(() => done);
    const chunks: Buffer[] = [];
    let offset = 0;
    for (;;) {
      const response = await host
        .fetch('GET', `/v1/vms/${vm}/execs/${id}/log?follow=1&offset=${offset}`)
        .catch(() => undefined);
      try {
        if (response?.ok !== true || response.body === null) throw new Error('not now');
        for await (const chunk of response.body) {
          chunks.push(Buffer.from(chunk));
          offset += chunk.length;
        }
        break;
      } catch {
        await sleep(20);
      }
    }
    done = true;
    await killing;
    const { stdout, exited } = streamsOf(Buffer.concat(chunks));
    expect(exited).toBe(true);
    const line = stdout.indexOf('\n');
    expect(stdout.subarray(0, 64).toString()).toBe(sum(stdout.subarray(line + 1)));
  });

  it('leaves terminals as they were', async () => {
    const { id } = await host.startExec(vm, ['sh'], { tty: { rows: 24, cols: 80 }, keep: 'ends', timeout_ms: 0 });
    {
      using viewer = await TestConnection.open(host, vm, id, 'rows=31&cols=99');
      viewer.type('x=kept; echo $((40 + 2))\n');
      await viewer.until('42');
      await killedAfter(0);
      await viewer.rest();
    }
    const exec = await host.call<HostExec>('GET', `/v1/vms/${vm}/execs/${id}`);
    expect(exec).toMatchObject({ state: 'running', tty: { rows: 31, cols: 99, viewers: 0 }, stdin_open: true });
    using viewer = await TestConnection.open(host, vm, id, 'tail=100000');
    expect(viewer.opened).toMatchObject({ tty: { rows: 31, cols: 99 } });
    viewer.type('echo $x; stty size; exit\n');
    const shown = await viewer.until('31 99');
    expect(shown).toContain('42');
    expect(shown).toContain('kept');
    await host.endOf(vm, id);
  });

  it.each(MOMENTS_MS)('%i ms into a destruction: the archive is there whenever the VM is gone', async (momentMs) => {
    const { id } = await insist(() => host.create());
    for (let round = 0; round < 3; round++) await host.shell(id, 'head -c 3000000 /dev/urandom', { keep: 'ends' });
    const key = `${newId('test')}/execs`;
    const first = host.destroy(id, key).catch(() => undefined);
    await killedAfter(momentMs);
    await first;
    expect(await insist(() => host.destroy(id, key))).toMatchObject({ archived: true });
    expect((await host.object(key)).length).toBeGreaterThan(9_000_000);
    expect((await host.list()).vms.map((each) => each.id)).not.toContain(id);
  });
});
