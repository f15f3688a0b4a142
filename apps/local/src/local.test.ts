import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFile, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Failure } from './failure.ts';
import { lockFile } from './file-lock.ts';
import { homeOf } from './home.ts';
import { warningsOf } from './host-report.ts';
import { readLocalFile, runningStack, writeLocalFile } from './local-file.ts';
import { boundLog, printLog, reasonInLog } from './log-file.ts';
import { portFrom, requireFreePort } from './port.ts';
import { isGoneWithin, processesIn, startTimeOf } from './processes.ts';
import { ensureSealingKey, ensureToken } from './token.ts';
import { requireAssets } from './up.ts';

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'fuse-local-'));
});
afterEach(() => rm(directory, { recursive: true }));

const at = (name: string) => join(directory, name);

describe('a lock', () => {
  it('has one holder at a time', async () => {
    const first = await lockFile(at('lock'));
    expect(first).toBeDefined();
    expect(await lockFile(at('lock'))).toBeUndefined();
    await first?.[Symbol.asyncDispose]();
    await using again = await lockFile(at('lock'));
    expect(again).toBeDefined();
  });

  it('is waited for', async () => {
    const first = await lockFile(at('lock'));
    const second = lockFile(at('lock'), 10_000);
    await first?.[Symbol.asyncDispose]();
    await (await second)?.[Symbol.asyncDispose]();
    expect(await second).toBeDefined();
  });

  it('ends with its holder, even when that is killed', async () => {
    const holder = spawn('flock', [at('lock'), 'sh', '-c', 'echo held; exec sleep 60'], {
      stdio: ['ignore', 'pipe', 'inherit'],
      detached: true,
    });
    await once(holder.stdout, 'data');
    expect(await lockFile(at('lock'))).toBeUndefined();
    process.kill(-(holder.pid ?? Number.NaN), 'SIGKILL');
    await using lock = await lockFile(at('lock'), 10_000);
    expect(lock).toBeDefined();
  });
});

describe('processes', () => {
  it('are named by pid and start time', async () => {
    const child = spawn('sleep', ['60'], { stdio: 'ignore' });
    await once(child, 'spawn');
    const pid = child.pid ?? Number.NaN;
    const startTime = (await startTimeOf(pid)) ?? '';
    expect(startTime).toMatch(/^[0-9a-f-]{36} \d+$/);
    expect(await isGoneWithin(pid, startTime, 100)).toBe(false);
    expect(await isGoneWithin(pid, 'another time', 100)).toBe(true);
    child.kill();
    expect(await isGoneWithin(pid, startTime, 10_000)).toBe(true);
  });

  it('are found in a directory that they work in or name', async () => {
    await mkdir(at('vms'));
    await writeFile(at('vms/log'), '');
    const inside = spawn('sleep', ['60'], { stdio: 'ignore', cwd: at('vms') });
    const naming = spawn('tail', ['-f', at('vms/log')], { stdio: 'ignore' });
    await Promise.all([once(inside, 'spawn'), once(naming, 'spawn')]);
    const found = (await processesIn(directory)).map(({ pid }) => pid);
    for (const child of [inside, naming]) {
      expect(found).toContain(child.pid);
      child.kill();
    }
    expect(await processesIn(`${directory}-other`)).toEqual([]);
  });
});

describe('what a stack is warned of', () => {
  it('is emulation, and VMMs that are not confined', () => {
    expect(warningsOf({ accelerator: 'kvm', confined: true })).toEqual([]);
    expect(warningsOf({ accelerator: 'tcg', confined: true })).toEqual([expect.stringContaining('KVM')]);
    expect(warningsOf({ accelerator: 'kvm', confined: false })).toEqual([expect.stringContaining('not confined')]);
  });

  it('is a file of the manifest that is not there', async () => {
    await mkdir(at('assets'));
    const file = { path: at('assets/there'), sha256: '0'.repeat(64) };
    await writeFile(file.path, '');
    const manifest = {
      kernel: { ...file, path: at('assets/no-kernel'), version: '6.1' },
      ...{ initramfs: file, images: [], programs: { jailer: file, gateway: file } },
    };
    await writeFile(at('assets/manifest.json'), JSON.stringify(manifest));
    const said = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
    try {
      await requireAssets(homeOf({ FUSE_HOME: directory }));
      expect(said).toHaveBeenCalledWith(expect.stringContaining(`${at('assets/no-kernel')} is missing`));
    } finally {
      said.mockRestore();
    }
  });
});

describe('local.json', () => {
  const home = () => homeOf({ FUSE_HOME: directory });
  const stack = {
    pid: process.pid,
    start_time: '',
    url: 'http://x',
    host_url: 'http://y',
    host_token: 'secret',
    started_at: '',
  };

  it('tells a living stack from a dead one, pid reuse included, and is its owner’s only', async () => {
    await writeLocalFile(home(), { ...stack, start_time: (await startTimeOf(process.pid)) ?? '' });
    expect((await runningStack(home()))?.pid).toBe(process.pid);
    expect((await stat(home().localFile)).mode & 0o777).toBe(0o600);
    await writeLocalFile(home(), { ...stack, start_time: 'an-earlier-boot 17' });
    expect(await runningStack(home())).toBeUndefined();
    expect((await readLocalFile(home()))?.alive).toBe(false);
  });

  it('that is not there, cut off or nonsense is no stack', async () => {
    expect(await readLocalFile(home())).toBeUndefined();
    for (const text of ['', '{"pid": 1', '{}', '{"pid": -1}']) {
      await writeFile(home().localFile, text);
      expect(await readLocalFile(home())).toBeUndefined();
    }
  });
});

describe('the key of what is secret in the database', () => {
  it('is made once, as an orchestrator takes it, and is its owner’s only', async () => {
    const read = () => readFile(at('key'), 'utf8');
    await Promise.all([1, 2, 3].map(() => ensureSealingKey(at('key'))));
    const key = await read();
    await ensureSealingKey(at('key'));
    expect(await read()).toBe(key);
    expect(Buffer.from(key.trim(), 'base64url')).toHaveLength(32);
    expect((await stat(at('key'))).mode & 0o777).toBe(0o600);
    expect(await readdir(directory)).toEqual(['key']);
  });
});

describe('the token', () => {
  it('is made once, and is its owner’s only', async () => {
    const tokens = await Promise.all([1, 2, 3].map(() => ensureToken(at('token'))));
    expect(new Set([...tokens, await ensureToken(at('token'))]).size).toBe(1);
    expect((await stat(at('token'))).mode & 0o777).toBe(0o600);
  });

  it('that somebody emptied is refused', async () => {
    await writeFile(at('token'), '\n');
    await expect(ensureToken(at('token'))).rejects.toBeInstanceOf(Failure);
  });
});

describe('the port', () => {
  it('is FUSE_PORT, or 8080', () => {
    expect([
      portFrom({}),
      portFrom({ FUSE_PORT: '' }),
      portFrom({ FUSE_PORT: '0' }),
      portFrom({ FUSE_PORT: '9000' }),
    ]).toEqual([8_080, 8_080, 0, 9_000]);
    for (const text of ['x', '-1', '70000', '80a', '1.5']) expect(() => portFrom({ FUSE_PORT: text })).toThrow(Failure);
  });

  it('that is in use is refused, naming who has it', async () => {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    const port = typeof address === 'object' ? (address?.port ?? 0) : 0;
    await expect(requireFreePort(port)).rejects.toThrow(
      new RegExp(`port ${port} is in use by .+ \\(pid ${process.pid}\\)`),
    );
    server.close();
    await once(server, 'close');
    await requireFreePort(port);
  });
});

describe('the log', () => {
  it('is bounded, its older part kept beside it', async () => {
    await writeFile(at('log'), 'x'.repeat(1_000));
    await boundLog(at('log'), 1_000);
    expect((await stat(at('log'))).size).toBe(1_000);
    await appendFile(at('log'), 'y');
    await boundLog(at('log'), 1_000);
    expect((await stat(at('log'))).size).toBe(0);
    expect((await readFile(at('log.1'), 'utf8')).length).toBe(1_001);
  });

  it('tells why a start failed: its last error, else its last lines', async () => {
    await writeFile(at('log'), 'old\n{"level":50,"msg":"old error"}\n');
    const { size } = await stat(at('log'));
    await appendFile(at('log'), '{"level":30,"msg":"fine"}\n');
    expect(await reasonInLog(at('log'), size)).toEqual({ message: '{"level":30,"msg":"fine"}' });
    await appendFile(at('log'), '{"level":50,"msg":"no","err":{"message":"disk full","hint":"make room"}}\nplain\n');
    expect(await reasonInLog(at('log'), size)).toEqual({ message: 'no: disk full', hint: 'make room' });
    expect(await reasonInLog(at('none'), 0)).toEqual({ message: 'it said nothing' });
  });

  it('is printed from its last lines on, and followed across a cut', async () => {
    await writeFile(at('log'), 'one\ntwo\nthree\n');
    let printed = '';
    const stop = new AbortController();
    const printing = printLog(at('log'), { lines: 2, follow: stop.signal }, (bytes) => {
      printed += Buffer.from(bytes).toString();
      if (printed.endsWith('two\nthree\n')) void appendFile(at('log'), 'four\n');
      if (printed.endsWith('four\n')) void writeFile(at('log'), 'new\n');
      if (printed.endsWith('new\n')) stop.abort();
    });
    await printing;
    expect(printed).toBe('two\nthree\nfour\nnew\n');
  });

  it('is printed whole when it has fewer lines', async () => {
    await writeFile(at('log'), 'one\ntwo');
    let printed = '';
    await printLog(at('log'), { lines: 10, follow: undefined }, (bytes) => {
      printed += Buffer.from(bytes).toString();
    });
    expect(printed).toBe('one\ntwo');
  });
});
