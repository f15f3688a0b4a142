import { createHash, randomBytes } from 'node:crypto';
import { readdir, stat } from 'node:fs/promises';
import { request } from 'node:http';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { FrameParser, frameType, type ListProcesses } from '@fuse/contract';
import {
  decodeExecArchiveIndex,
  EXEC_ARCHIVE_PREFIX_BYTES,
  execArchiveIndexBytes,
  type HostExec,
  type StartExec,
} from '@fuse/host-protocol';
import { newId } from '@fuse/runtime';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { streamsOf, TestHost } from '../vms/test-host.ts';
import { TestConnection } from './test-connection.ts';

let host: TestHost;
let vm: string;
beforeAll(async () => {
  host = await TestHost.open();
  vm = (await host.create()).id;
});
afterAll(() => host[Symbol.asyncDispose]());

const MIB = 1024 ** 2;
const sum = (bytes: Uint8Array | string) => createHash('sha256').update(bytes).digest('hex');
const get = (id: string, ofVm = vm) => host.call<HostExec>('GET', `/v1/vms/${ofVm}/execs/${id}`);
const open = (argv: string[], more: Partial<StartExec> = {}, ofVm = vm) =>
  host.startExec(ofVm, argv, { keep: 'ends', stdin_open: true, ...more });
const shell = (script: string, more: Partial<StartExec> = {}, ofVm = vm) => open(['sh', '-c', script], more, ofVm);
const kill = (id: string) => host.call('DELETE', `/v1/vms/${vm}/execs/${id}`);
const out = async (id: string) => streamsOf(await host.log(vm, id)).stdout.toString();

async function diskBytes(id: string): Promise<number> {
  const directory = join(host.vmsDirectory, vm, 'execs', id);
  const names = (await readdir(directory)).filter((name) => name.startsWith('frames'));
  const sizes = await Promise.all(names.map((name) => stat(join(directory, name)).then(({ size }) => size)));
  return sizes.reduce((total, size) => total + size, 0);
}

describe('the list of execs', () => {
  it('has what runs and what has ended, in the order of their start, cut for display', async () => {
    const first = await host.run(vm, ['echo', 'x'.repeat(10_000), 'y'], { cwd: '/tmp' });
    const second = await open(['cat']);
    const { execs } = await host.call<{ execs: HostExec[] }>('GET', `/v1/vms/${vm}/execs`);
    expect(execs.map(({ id }) => id).slice(-2)).toEqual([first.exec.id, second.id]);
    expect(execs.at(-2)).toMatchObject({ state: 'exited', cwd: '/tmp', stdin_open: false });
    expect(execs.at(-2)?.argv.join('').length).toBeLessThan(4_200);
    expect(Date.parse(execs.at(-2)?.ended_at ?? '')).toBeGreaterThanOrEqual(Date.parse(execs.at(-2)?.created_at ?? ''));
    expect(execs.at(-1)).toMatchObject({ state: 'running', argv: ['cat'], stdin_open: true });
    await kill(second.id);
  });
});

describe('stdin that comes with the start', () => {
  it('arrives whole, then ends; nothing of it is left on the host', async () => {
    const bytes = randomBytes(10 * MIB);
    const { id } = await open(['sha256sum'], { stdin_base64: bytes.toString('base64'), stdin_open: false });
    expect(await host.endOf(vm, id)).toMatchObject({ exit: { exit_code: 0 }, stdin_open: false });
    expect(await out(id)).toContain(sum(bytes));
    expect(await readdir(join(host.vmsDirectory, vm, 'execs', id))).not.toContain('stdin');
  });

  it('may be followed by more, may be empty, may be left unread', async () => {
    const { id } = await open(['cat'], { stdin_base64: Buffer.from('first ').toString('base64') });
    expect(await host.stdin(vm, id, 'second', 'end=1')).toEqual({ stdin_bytes: 12, closed: true });
    await host.endOf(vm, id);
    expect(await out(id)).toBe('first second');

    const empty = await open(['cat'], { stdin_base64: '', stdin_open: false });
    expect(await host.endOf(vm, empty.id)).toMatchObject({ exit: { exit_code: 0, stdout_bytes: 0 } });
    const unread = await open(['true'], { stdin_base64: randomBytes(MIB).toString('base64'), stdin_open: false });
    expect(await host.endOf(vm, unread.id)).toMatchObject({ exit: { exit_code: 0 } });
  });

  it('goes with no object', async () => {
    const both = { stdin_base64: '', stdin_object_key: 'some/object', stdin_open: false };
    await expect(open(['cat'], both)).rejects.toMatchObject({ status: 400, code: 'invalid_argument' });
  });
});

describe('stdin by requests', () => {
  it('is written once, however often a piece of it is sent', async () => {
    const { id } = await open(['cat']);
    expect(await host.stdin(vm, id, 'hello ')).toEqual({ stdin_bytes: 6, closed: false });
    expect(await host.stdin(vm, id, 'lo world', 'offset=3')).toEqual({ stdin_bytes: 11, closed: false });
    expect(await host.stdin(vm, id, 'hello world', 'offset=0')).toEqual({ stdin_bytes: 11, closed: false });
    await expect(host.stdin(vm, id, 'x', 'offset=12')).rejects.toMatchObject({
      status: 409,
      details: { stdin_bytes: '11' },
    });
    expect(await host.stdin(vm, id, '', 'end=1&offset=11')).toEqual({ stdin_bytes: 11, closed: true });
    await host.endOf(vm, id);
    expect(await out(id)).toBe('hello world');
    await expect(host.stdin(vm, id, 'late')).rejects.toMatchObject({
      status: 409,
      details: { reason: 'stdin_closed' },
    });
    await expect(host.stdin(vm, 'none', 'x')).rejects.toMatchObject({ status: 404 });
  });

  it('streams at the pace of the command, with flat memory, and ends with it', async () => {
    const { id } = await shell('head -c 1000000 | sha256sum; sleep 600');
    const piece = randomBytes(64 * 1024);
    let sent = 0;
    const body = Readable.from(
      (function* () {
        for (; sent < 200 * MIB; sent += piece.length) yield piece;
      })(),
      { objectMode: false },
    );
    const answer = new Promise<number | undefined>((resolve, reject) => {
      const call = request(`${host.url}/v1/vms/${vm}/execs/${id}/stdin`, {
        method: 'POST',
        headers: host.authorization,
      });
      call.on('response', (response) => {
        response.resume();
        resolve(response.statusCode);
      });
      call.on('error', reject);
      // In the end it stands still, half sent: nor does that hold up the end of the host agent.
      body.pipe(call);
    });
    await vi.waitFor(async () => expect(await out(id)).toContain('-'), 10_000);
    let before = -1;
    await vi.waitFor(() => {
      const moved = sent - before;
      before = sent;
      expect(moved).toBe(0);
    }, 20_000);
    expect(sent).toBeLessThan(40 * MIB);
    await kill(id);
    expect(await answer.catch(() => 409)).toBe(409);
    body.destroy();
  });
});

describe('a signal', () => {
  it('reaches the command, or all that it started, and is nothing once it has ended', async () => {
    const { id } = await shell('trap "echo caught; exit 7" USR1; echo ready; while :; do sleep 0.05; done');
    await vi.waitFor(async () => expect(await out(id)).toBe('ready\n'), 10_000);
    await host.call('POST', `/v1/vms/${vm}/execs/${id}/signal`, { signal: 'SIGUSR1' });
    expect(await host.endOf(vm, id)).toMatchObject({ exit: { exit_code: 7 } });
    expect(await out(id)).toBe('ready\ncaught\n');
    await host.call('POST', `/v1/vms/${vm}/execs/${id}/signal`, { signal: 'SIGKILL' });

    const tree = await shell('setsid sleep 777 & echo up; sleep 778');
    await vi.waitFor(async () => expect(await out(tree.id)).toBe('up\n'), 10_000);
    await host.call('POST', `/v1/vms/${vm}/execs/${tree.id}/signal`, { signal: 'SIGKILL', tree: true });
    expect(await host.endOf(vm, tree.id)).toMatchObject({ exit: { exit_code: 137 } });
    await expect(
      host.call('POST', `/v1/vms/${vm}/execs/${tree.id}/signal`, { signal: 'SIGNONE' }),
    ).rejects.toMatchObject({ status: 400 });
  });
});

describe('processes', () => {
  it('are listed, and can be signalled', async () => {
    const { id } = await shell('exec sleep 4321');
    const path = `/v1/vms/${vm}/processes`;
    const find = async () =>
      (await host.call<ListProcesses>('GET', path)).processes.find(({ command }) => command.join(' ') === 'sleep 4321');
    // The shell is there a moment before it becomes what it runs.
    const found = await vi.waitFor(async () => {
      const process = await find();
      expect(process).toMatchObject({ exec_id: id, user: 'root' });
      return process;
    }, 10_000);
    expect(found?.memory_bytes).toBeGreaterThan(0);
    await host.call('POST', `${path}/${found?.pid}/signal`, { signal: 'SIGTERM' });
    expect(await host.endOf(vm, id)).toMatchObject({ exit: { exit_code: 143 } });
    await expect(host.call('POST', `${path}/${found?.pid}/signal`, { signal: 'SIGTERM' })).rejects.toMatchObject({
      status: 404,
    });
    await expect(host.call('POST', `${path}/1/signal`, { signal: 'SIGKILL' })).rejects.toMatchObject({ status: 409 });
  });
});

describe('a connection', () => {
  it('carries both ways to the end of the command', async () => {
    const { id } = await open(['cat']);
    using connection = await TestConnection.open(host, vm, id);
    expect(connection.opened).toEqual({ exec_id: id, offset: 0, log_end: 0, stdin_bytes: 0, stdin_closed: false });
    connection.type('to and ');
    connection.type('fro');
    expect(await connection.until('fro')).toBe('to and fro');
    connection.end();
    const rest = await connection.rest();
    expect(rest.map(({ type }) => type)).toEqual([frameType.exit]);

    using later = await TestConnection.open(host, vm, id, 'tail=1000');
    expect(later.opened).toMatchObject({ offset: 0, stdin_closed: true });
    expect((await later.rest()).at(-1)?.type).toBe(frameType.exit);
  });

  it('goes on where an earlier one was cut, stdin and output once each', async () => {
    const { id } = await open(['cat']);
    const bytes = randomBytes(300_000);
    let at = 0;
    while (at < bytes.length) {
      using connection = await TestConnection.open(host, vm, id);
      const { stdin_bytes } = connection.opened;
      expect(stdin_bytes).toBeGreaterThanOrEqual(0);
      at = Math.min(stdin_bytes + 70_001, bytes.length);
      connection.type(bytes.subarray(stdin_bytes, at));
      if (at === bytes.length) {
        connection.end();
        await connection.rest();
      }
    }
    expect(await host.endOf(vm, id)).toMatchObject({ exit: { exit_code: 0 } });
    expect(sum(streamsOf(await host.log(vm, id)).stdout)).toBe(sum(bytes));
  });

  it('carries signals past stdin that nobody reads', async () => {
    const { id } = await shell('echo up; exec sleep 600');
    using connection = await TestConnection.open(host, vm, id);
    await connection.until('up');
    connection.type(randomBytes(200_000));
    connection.signal('SIGTERM');
    expect((await connection.rest()).at(-1)?.type).toBe(frameType.exit);
    expect(await host.endOf(vm, id)).toMatchObject({ exit: { exit_code: 143 } });
  });

  it('is refused as an answer, and cut by what is no frame', async () => {
    await expect(TestConnection.open(host, vm, 'none')).rejects.toMatchObject({ status: 404 });
    await expect(TestConnection.open(host, 'none', 'none')).rejects.toMatchObject({ status: 404 });
    const { id } = await open(['cat']);
    for (const query of ['offset=-1', 'rows=0&cols=1', 'offset=999'])
      await expect(TestConnection.open(host, vm, id, query)).rejects.toMatchObject({ status: 400 });
    using connection = await TestConnection.open(host, vm, id);
    connection.sendRaw(Buffer.from([99, 0, 0, 0, 0, 0, 0, 1, 7]));
    connection.type('still');
    await connection.until('still');
    connection.sendRaw(Buffer.alloc(64, 0xff));
    expect(await connection.rest()).toEqual([]);
    expect(await get(id)).toMatchObject({ state: 'running' });
    await kill(id);
  });
});

describe('a terminal', () => {
  const terminal = (argv: string[], more: Partial<StartExec> = {}) =>
    host.startExec(vm, argv, {
      tty: { rows: 24, cols: 80 },
      keep: 'ends',
      hold: { until_followed_ms: 0 },
      timeout_ms: 0,
      ...more,
    });

  it('of one connection is killed once nobody watches it, and not before', async () => {
    const { id } = await terminal(['sh'], { kill_unwatched_ms: 1_000 });
    {
      using viewer = await TestConnection.open(host, vm, id);
      viewer.type('sleep 2; echo still $((40 + 2))\n');
      await viewer.until('still 42');
    }
    expect(await host.endOf(vm, id)).toMatchObject({ state: 'exited', exit: { signal: 'SIGKILL' } });
    const never = await terminal(['sh'], { kill_unwatched_ms: 500 });
    expect(await host.endOf(vm, never.id)).toMatchObject({ state: 'exited' });
  });

  it('echoes, outlives its viewers, and shows its scrollback again', async () => {
    const { id } = await terminal(['sh']);
    {
      using viewer = await TestConnection.open(host, vm, id, 'rows=30&cols=100');
      expect(viewer.opened).toMatchObject({ tty: { rows: 30, cols: 100 } });
      viewer.type('x=kept; echo $((40 + 2)); stty size\n');
      expect(await viewer.until('30 100')).toContain('42');
      expect(await get(id)).toMatchObject({ tty: { rows: 30, cols: 100, viewers: 1 }, stdin_open: true });
    }
    await vi.waitFor(
      async () => expect(await get(id)).toMatchObject({ tty: { rows: 30, cols: 100, viewers: 0 } }),
      10_000,
    );
    using viewer = await TestConnection.open(host, vm, id, 'tail=100000&rows=40&cols=90');
    expect(await viewer.until('30 100')).toContain('42');
    viewer.type('echo $x; stty size\n');
    expect(await viewer.until('40 90')).toContain('kept');
    viewer.type('exit 5\n');
    expect((await viewer.rest()).at(-1)?.type).toBe(frameType.exit);
    expect(await host.endOf(vm, id)).toMatchObject({ exit: { exit_code: 5 } });
  });

  it('has the size that all its viewers can show', async () => {
    const { id } = await terminal(['sh', '-c', 'trap "stty size" WINCH; echo up; while :; do sleep 0.05; done']);
    using wide = await TestConnection.open(host, vm, id);
    await wide.until('up');
    wide.resize({ rows: 20, cols: 200 });
    await wide.until('20 200');
    using high = await TestConnection.open(host, vm, id, 'rows=60&cols=70');
    expect(await get(id)).toMatchObject({ tty: { rows: 20, cols: 70, viewers: 2 } });
    await wide.until('20 70');
    using watcher = await TestConnection.open(host, vm, id);
    expect(watcher.opened.tty).toEqual({ rows: 20, cols: 70 });
    high.resize({ rows: 61, cols: 65_535 });
    await wide.until('20 200');
    high.resize({ rows: 0, cols: 0 });
    wide[Symbol.dispose]();
    await high.until('61 65535');
    high[Symbol.dispose]();
    watcher[Symbol.dispose]();
    await vi.waitFor(
      async () => expect(await get(id)).toMatchObject({ tty: { rows: 61, cols: 65_535, viewers: 0 } }),
      10_000,
    );
    await kill(id);
  });

  it('that floods is held by its viewer, and obeys Ctrl-C', async () => {
    const { id } = await terminal(['sh', '-c', 'trap "echo stopped" INT; yes; echo behind; exec cat']);
    using viewer = await TestConnection.open(host, vm, id, 'rows=24&cols=80');
    await viewer.until('y');
    viewer.type('\x03');
    await viewer.until('behind');
    viewer.type('again\n');
    await viewer.until('again');
    viewer.type('\x04');
    expect((await viewer.rest()).at(-1)?.type).toBe(frameType.exit);
  });

  it('whose viewers hang does not hold up a destruction or its own end', async () => {
    const { id } = await terminal(['yes']);
    using viewer = await TestConnection.open(host, vm, id, 'rows=24&cols=80');
    await viewer.until('y');
    viewer.stall();
    await kill(id);
    expect(await host.endOf(vm, id)).toMatchObject({ state: 'exited', exit: { exit_code: 137 } });
  });
});

describe('a log of both ends', () => {
  it('is bounded, and tells what it does not keep', async () => {
    const script = 'i=0; while [ $i -lt 40 ]; do head -c 100000 /dev/zero; i=$((i+1)); done; echo end';
    const { id } = await shell(script, { max_log_bytes: MIB });
    const exec = await host.endOf(vm, id);
    expect(exec).toMatchObject({ state: 'exited', log_truncated: true, exit: { stdout_bytes: 4_000_004 } });
    expect(await diskBytes(id)).toBeLessThan(1.1 * MIB);
    const { from, to } = exec.log_gap ?? { from: 0, to: 0 };
    expect([from, exec.log_bytes - to].every((size) => size > 0.4 * MIB && size <= 0.6 * MIB)).toBe(true);

    const frames = [...new FrameParser().push(await host.log(vm, id))];
    const gap = frames.findIndex(({ type }) => type === frameType.gap);
    expect(JSON.parse(Buffer.from(frames[gap]?.payload ?? []).toString())).toEqual({ from, to });
    expect(frames.at(-1)?.type).toBe(frameType.exit);
    expect(Buffer.from(frames.at(-2)?.payload ?? []).toString()).toMatch(/end\n$/);

    const within = await host.fetch('GET', `/v1/vms/${vm}/execs/${id}/log?offset=${from + 1_000}`);
    expect(within.headers.get('fuse-log-offset')).toBe(String(from + 1_000));
    const [first] = new FrameParser().push(Buffer.from(await within.arrayBuffer()));
    expect(JSON.parse(Buffer.from(first?.payload ?? []).toString())).toEqual({ from: from + 1_000, to });
    const tail = await host.fetch('GET', `/v1/vms/${vm}/execs/${id}/log?tail=200`);
    expect(Number(tail.headers.get('fuse-log-offset'))).toBeGreaterThanOrEqual(exec.log_bytes - 200);
    expect(streamsOf(Buffer.from(await tail.arrayBuffer())).exited).toBe(true);
    expect((await host.result(vm, id, 1_000)).truncated).toBe(true);
  });

  it('loses nothing of 100 MiB for a follower that holds the command back', async () => {
    const script =
      'dd if=/dev/urandom of=/workspace/big bs=1M count=100 2>/dev/null; sha256sum < /workspace/big; cat /workspace/big; rm /workspace/big';
    const { id } = await shell(script, { max_log_bytes: MIB, hold: { until_followed_ms: 10_000 }, timeout_ms: 0 });
    const before = process.memoryUsage().rss;
    const { stdout, exited } = streamsOf(await host.log(vm, id, { follow: true }));
    expect(exited).toBe(true);
    const line = stdout.indexOf('\n');
    expect(stdout.length).toBe(100 * MIB + line + 1);
    expect(stdout.subarray(0, 64).toString()).toBe(sum(stdout.subarray(line + 1)));
    // The test itself holds all of it.
    expect(process.memoryUsage().rss - before).toBeLessThan(700 * MIB);
    expect(await diskBytes(id)).toBeLessThan(11 * MIB);
  }, 180_000);

  it('lets the command wait for a follower that has not come, and for none that hangs', async () => {
    const script = 'head -c 3000000 /dev/zero; echo end';
    const more = { max_log_bytes: MIB, hold: { until_followed_ms: 600_000 }, timeout_ms: 0 };
    const { id } = await shell(script, more);
    let before = -1;
    await vi.waitFor(
      async () => {
        const { log_bytes } = await get(id);
        const moved = log_bytes - before;
        before = log_bytes;
        expect(moved).toBe(0);
      },
      { timeout: 10_000, interval: 500 },
    );
    expect(await get(id)).toMatchObject({ state: 'running', log_truncated: false });
    const { stdout } = streamsOf(await host.log(vm, id, { follow: true }));
    expect(stdout.length).toBe(3_000_004);

    const other = await shell('head -c 30000000 /dev/zero', more);
    using stalled = await TestConnection.open(host, vm, other.id);
    stalled.stall();
    expect(await host.endOf(vm, other.id)).toMatchObject({ state: 'exited', exit: { stdout_bytes: 30_000_000 } });
  }, 60_000);
});

describe('a VM with execs', () => {
  it('that is paused keeps them: connections are cut, and go on when they come again', async () => {
    const other = (await host.create()).id;
    const { id } = await host.startExec(other, ['sh'], { tty: { rows: 24, cols: 80 }, keep: 'ends', timeout_ms: 0 });
    const cat = await open(['cat'], { timeout_ms: 0 }, other);
    await host.stdin(other, cat.id, 'before ');
    using viewer = await TestConnection.open(host, other, id, 'rows=33&cols=111');
    viewer.type('x=kept; echo $((40 + 2))\n');
    await viewer.until('42');
    await host.pause(other);
    expect((await viewer.rest()).every(({ type }) => type !== frameType.exit)).toBe(true);
    expect(await get(id, other)).toMatchObject({ state: 'running', tty: { rows: 33, cols: 111, viewers: 0 } });
    await expect(TestConnection.open(host, other, id)).rejects.toMatchObject({ status: 409 });
    await expect(host.stdin(other, cat.id, 'x')).rejects.toMatchObject({ status: 409, details: { state: 'paused' } });
    expect((await host.log(other, id)).toString()).toContain('42');
    await host.resume(other);
    using again = await TestConnection.open(host, other, id, 'tail=100000&rows=34&cols=111');
    again.type('echo $x; stty size\n');
    expect(await again.until('34 111')).toContain('kept');
    expect(await host.stdin(other, cat.id, 'after', 'offset=7&end=1')).toEqual({ stdin_bytes: 12, closed: true });
    await host.endOf(other, cat.id);
    expect(streamsOf(await host.log(other, cat.id)).stdout.toString()).toBe('before after');
    await host.destroy(other);
  });

  it('that is destroyed leaves their records and logs as one object, those that ran as lost', async () => {
    const other = (await host.create()).id;
    const short = await shell('echo out; echo err >&2; exit 3', { stdin_open: false }, other);
    await host.endOf(other, short.id);
    const long = await shell('head -c 5000000 /dev/zero; echo end', { stdin_open: false, max_log_bytes: MIB }, other);
    const { log_gap, log_bytes } = await host.endOf(other, long.id);
    const running = await shell('echo up; exec sleep 600', {}, other);
    await vi.waitFor(async () => expect((await host.log(other, running.id)).length).toBeGreaterThan(0), 10_000);
    const key = `${newId('test')}/execs`;
    expect(await host.destroy(other, key)).toMatchObject({ destroyed: true, archived: true });
    // Asked again by somebody who did not hear the answer.
    expect(await host.destroy(other, key)).toMatchObject({ destroyed: false, archived: true });

    const object = await host.object(key);
    const size = execArchiveIndexBytes(object.subarray(0, EXEC_ARCHIVE_PREFIX_BYTES));
    const logs = object.subarray(EXEC_ARCHIVE_PREFIX_BYTES + size);
    const { execs } = decodeExecArchiveIndex(
      object.subarray(EXEC_ARCHIVE_PREFIX_BYTES, EXEC_ARCHIVE_PREFIX_BYTES + size),
      object.length,
    );
    expect(execs.map(({ exec }) => [exec.id, exec.state])).toEqual([
      [short.id, 'exited'],
      [long.id, 'exited'],
      [running.id, 'lost'],
    ]);
    const logOf = (at: number) =>
      Buffer.concat(
        (execs[at]?.segments ?? []).map((segment) => logs.subarray(segment.at, segment.at + segment.size_bytes)),
      );
    expect(streamsOf(logOf(0))).toMatchObject({ stdout: Buffer.from('out\n'), stderr: Buffer.from('err\n') });
    expect(execs[1]?.exec).toMatchObject({ log_gap, log_bytes });
    expect(streamsOf(logOf(1)).exited).toBe(true);
    expect(streamsOf(logOf(1)).stdout.subarray(-4).toString()).toBe('end\n');
    expect(streamsOf(logOf(2)).stdout.toString()).toBe('up\n');
  });

  it('that is a fork knows its own execs alone, and names the processes of those', async () => {
    const inherited = await open(['cat'], { timeout_ms: 0 });
    const { id: snapshot } = await host.snapshot(vm);
    await kill(inherited.id);
    const fork = (await host.fork(snapshot)).id;
    const own = await open(['cat'], { timeout_ms: 0 }, fork);
    using connection = await TestConnection.open(host, fork, own.id);
    connection.type('own');
    await connection.until('own');
    const { processes } = await host.call<ListProcesses>('GET', `/v1/vms/${fork}/processes`);
    const cats = processes.filter(({ command }) => command.join() === 'cat').map(({ exec_id }) => exec_id);
    expect(cats).toHaveLength(2);
    expect(new Set(cats)).toEqual(new Set([own.id, undefined]));
    await expect(TestConnection.open(host, fork, inherited.id)).rejects.toMatchObject({ status: 404 });
    await host.destroy(fork);
    await host.deleteSnapshot(snapshot);
  });

  it('that dies ends connections without an exit frame, and its execs as lost', async () => {
    const other = (await host.create()).id;
    const { id } = await open(['cat'], { timeout_ms: 0 }, other);
    using connection = await TestConnection.open(host, other, id);
    connection.type('here');
    await connection.until('here');
    const from = performance.now();
    process.kill(await host.vmmPid(other), 'SIGKILL');
    expect(await connection.rest()).toEqual([]);
    expect(await host.endOf(other, id)).toMatchObject({ state: 'lost', stdin_open: false });
    expect(performance.now() - from).toBeLessThan(5_000);
    await expect(host.stdin(other, id, 'x')).rejects.toMatchObject({ status: 502, code: 'vm_lost' });
    using later = await TestConnection.open(host, other, id);
    expect((await later.rest()).map(({ type }) => type)).toEqual([frameType.stdout]);
    await host.destroy(other);
  });

  it('that had none leaves no object', async () => {
    const { id } = await host.create();
    const key = `${newId('test')}/execs`;
    expect(await host.destroy(id, key)).toMatchObject({ destroyed: true, archived: false });
    await expect(host.object(key)).rejects.toMatchObject({ code: 'not_found' });
  });

  it('is destroyed although readers and writers of them hang', async () => {
    const other = (await host.create()).id;
    const more = { hold: { until_followed_ms: 600_000 }, timeout_ms: 0 };
    const { id } = await shell('yes', more, other);
    const waiting = await shell('yes', more, other);
    using viewer = await TestConnection.open(host, other, id);
    viewer.stall();
    for (let round = 0; round < 4; round++) viewer.type(randomBytes(MIB));
    const deadline = new AbortController();
    const written = host.stdin(other, waiting.id, randomBytes(8 * MIB), '', deadline.signal).catch(() => undefined);
    const from = performance.now();
    expect(await host.destroy(other)).toMatchObject({ destroyed: true });
    expect(performance.now() - from).toBeLessThan(8_000);
    expect(await written).toBeUndefined();
  });
});
