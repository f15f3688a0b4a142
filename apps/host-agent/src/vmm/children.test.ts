import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { createLogger, sleep } from '@fuse/runtime';
import {
  descendantsOf,
  expectNoLeaks,
  resourceSnapshot,
  runningProcesses,
  type TemporaryDirectory,
  temporaryDirectory,
} from '@fuse/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { plainDevices, prepareVmmRoot } from '../confinement/vmm-root.ts';
import { endSpawner, openSpawner, runProgram, startChild } from './children.ts';
import type { Jail } from './jail.ts';
import { VmmProcess } from './process.ts';

const PATH = '/usr/bin:/bin';

let directory: TemporaryDirectory;
let vmm: VmmProcess | undefined;
beforeEach(async () => {
  directory = await temporaryDirectory();
});
afterEach(async () => {
  await vmm?.kill();
  vmm = undefined;
  await endSpawner();
  await directory[Symbol.asyncDispose]();
});

async function sleeper(jail?: Jail): Promise<VmmProcess> {
  vmm = await VmmProcess.spawn({
    program: '/usr/bin/sleep',
    args: ['600'],
    directory: directory.path,
    stdio: ['ignore', 'ignore', 'ignore'],
    ...(jail && { jail, jailDirectory: '/vm' }),
  });
  return vmm;
}

const PRISONER = 869_998;

async function jail(): Promise<Jail> {
  await chmod(directory.path, 0o711);
  return {
    root: await prepareVmmRoot(join(directory.path, 'roots'), {
      programs: ['/usr/bin/sleep'],
      files: [],
      devices: plainDevices,
      places: { files: [], directories: ['/vm'] },
    }),
    binds: [{ source: directory.path, target: '/vm', writable: false }],
    uid: PRISONER,
    gid: PRISONER,
    cgroupProcs: [],
    limits: { openFiles: 64, fileSizeBytes: 1_048_576 },
    seccomp: 'qemu',
    readOnlyOpens: ['/vm/memory'],
  };
}

async function spawners(parent = process.pid): Promise<number[]> {
  const ours = descendantsOf(parent, await runningProcesses());
  return ours.filter(({ command }) => command.endsWith('fuse-jailer serve')).map(({ pid }) => pid);
}

async function killSpawners(): Promise<number[]> {
  const pids = await spawners();
  for (const pid of pids) process.kill(pid, 'SIGKILL');
  return pids;
}

const isRunning = async (pid: number) => (await runningProcesses()).some((each) => each.pid === pid);

describe('the spawner', () => {
  it('is one process however much is started, and its end leaves nothing', async () => {
    const before = await resourceSnapshot();
    await using opened = openSpawner(createLogger({ name: 'test', level: 'silent' }));
    await Promise.all(Array.from({ length: 10 }, () => runProgram('true', [], { path: PATH })));
    expect(await spawners()).toHaveLength(1);
    await opened[Symbol.asyncDispose]();
    await expectNoLeaks(before);
  });

  it('opens files by their names, in their order', async () => {
    const [input, log] = [join(directory.path, 'input'), join(directory.path, 'log')];
    await writeFile(input, 'from descriptor 3\n');
    const child = await startChild({
      program: '/bin/sh',
      args: ['-c', 'cat <&3; echo to stderr >&2'],
      env: {},
      session: true,
      stdio: ['ignore', { path: log, flags: 'a' }, { path: log, flags: 'a' }, { path: input, flags: 'r' }],
    });
    expect(await child.ended).toMatchObject({ code: 0, signal: null });
    expect(await readFile(log, 'utf8')).toBe('from descriptor 3\nto stderr\n');
  });

  it('says which file it could not open', async () => {
    const missing = join(directory.path, 'missing');
    const spec = { program: '/bin/true', args: [], env: {}, session: true };
    await expect(startChild({ ...spec, stdio: [{ path: missing, flags: 'r' }] })).rejects.toThrow(missing);
  });

  it('gives its children nothing of our environment, nor its channel to us', async () => {
    const log = join(directory.path, 'log');
    const child = await startChild({
      program: '/bin/sh',
      args: ['-c', '/usr/bin/env; /bin/ls -l /proc/self/fd'],
      env: {},
      session: true,
      stdio: ['ignore', { path: log, flags: 'a' }, 'ignore'],
    });
    await child.ended;
    const text = await readFile(log, 'utf8');
    expect(text).toContain(`1 -> ${log}`);
    expect(text).not.toMatch(/socket:|NODE_|^PATH=/m);
  });

  it('that dies takes no VMM with it: its end is still noticed, and the next child gets a new spawner', async () => {
    const { pid, exited } = await sleeper();
    const first = await killSpawners();
    // Whoever asks before its death is known here is told that it is lost.
    while ((await runProgram('echo', ['again'], { path: PATH }).catch(() => '')) === '') await sleep(5);
    expect(first).toHaveLength(1);
    expect(await spawners()).not.toContain(first[0]);
    expect(await isRunning(pid)).toBe(true);
    process.kill(pid, 'SIGKILL');
    expect(await exited).toEqual({ code: null, signal: null });
  });

  it.skipIf(process.getuid?.() !== 0)('starts a VMM in its jail, which is found by its directory', async () => {
    const { pid } = await sleeper(await jail());
    vmm?.up();
    const status = await readFile(`/proc/${pid}/status`, 'utf8');
    expect(status).toContain(`Uid:\t${PRISONER}`);
    expect(status).toMatch(/^NSpid:\t\d+\t1$/m);
    expect(await readFile(`/proc/${pid}/cmdline`, 'utf8')).toBe(['/usr/bin/sleep', '600', ''].join('\0'));
    await rm(join(directory.path, 'vmm.json'));
    expect((await VmmProcess.adopt(directory.path, 'sleep'))?.pid).toBe(pid);
  });

  it.skipIf(process.getuid?.() !== 0)(
    'says why a VMM could not enter its jail, and nothing of it is left',
    async () => {
      const starting = sleeper({ ...(await jail()), networkNamespacePath: '/run/netns/none' });
      await expect(starting).rejects.toThrow('cannot enter its network: open the network namespace /run/netns/none');
      const ours = descendantsOf(process.pid, await runningProcesses());
      expect(ours.filter(({ command }) => command.startsWith('fuse-jailer enter'))).toEqual([]);
    },
  );

  it.each([
    ['', async () => undefined],
    ['jailed ', async () => (process.getuid?.() === 0 ? await jail() : undefined)],
  ])('that dies while it starts a %sVMM leaves none behind', async (_, makeJail) => {
    const jail = await makeJail();
    await runProgram('true', [], { path: PATH });
    for (let round = 0; round < 20; round++) {
      const starting = sleeper(jail);
      starting.catch(() => {});
      await sleep(round / 4);
      await killSpawners();
      const started = await starting.catch((error: unknown) => error);
      if (started instanceof VmmProcess) await started.kill();
      else expect(started).toMatchObject({ code: 'unavailable' });
      expect(await VmmProcess.adopt(directory.path, 'sleep')).toBeUndefined();
    }
  });

  it('that is told to end lets VMMs run on', async () => {
    const { pid } = await sleeper();
    await endSpawner();
    expect(await isRunning(pid)).toBe(true);
    await vmm?.kill();
    expect(await isRunning(pid)).toBe(false);
  });

  it('ends with whoever needed it, killed without a word, while the VMM lives on', async () => {
    const script = `
      import { VmmProcess } from '${new URL('../../dist/vmm/process.js', import.meta.url)}';
      import { runProgram } from '${new URL('../../dist/vmm/children.js', import.meta.url)}';
      const options = { program: '/usr/bin/sleep', args: ['600'], directory: ${JSON.stringify(directory.path)}, stdio: [] };
      const vmm = await VmmProcess.spawn(options);
      process.stdout.write(vmm.pid + ' ');
      await runProgram('sleep', ['601'], { path: '${PATH}' });`;
    const user = spawn(process.execPath, ['--input-type=module', '-e', script], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const [pid] = await once(user.stdout, 'data');
    let children = descendantsOf(user.pid ?? 0, await runningProcesses());
    const isHelper = ({ command }: { command: string }) => command === 'sleep 601';
    while (!children.some(isHelper)) children = descendantsOf(user.pid ?? 0, await runningProcesses());
    const ended = once(user, 'exit');
    user.kill('SIGKILL');
    await ended;
    for (const each of children.filter((child) => child.pid !== Number(pid)))
      while (await isRunning(each.pid)) await sleep(5);
    expect(await isRunning(Number(pid))).toBe(true);
    vmm = await VmmProcess.adopt(directory.path, 'sleep');
    expect(vmm?.pid).toBe(Number(pid));
  });

  it('keeps nobody alive who has nothing more to do', async () => {
    const script = `
      import { runProgram } from '${new URL('../../dist/vmm/children.js', import.meta.url)}';
      await runProgram('true', [], { path: '${PATH}' });
      process.stdout.write('done');`;
    const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', script], {
      timeout: 30_000,
    });
    expect(stdout).toBe('done');
  });
});

describe('a short program', () => {
  it('answers with what it wrote, and with an error when that is too much', async () => {
    expect(await runProgram('seq', ['3'], { path: PATH })).toBe('1\n2\n3\n');
    expect((await runProgram('seq', ['1000000'], { path: PATH })).length).toBe(6_888_896);
    await expect(runProgram('yes', [], { path: PATH })).rejects.toThrow('yes was ended by SIGKILL');
  });

  it('that fails says what it wrote to stderr, bounded', async () => {
    const failing = runProgram('sh', ['-c', 'seq 100000 >&2; exit 3'], { path: PATH });
    await expect(failing).rejects.toMatchObject({
      message: 'sh ended with 3',
      stderr: expect.stringMatching(/^1\n2\n/),
    });
    const error = (await failing.catch((each: unknown) => each)) as { stderr: string };
    expect(error.stderr.length).toBe(4_096);
  });

  it('that is not there is an error', async () => {
    await expect(runProgram('no-such-program', [], { path: PATH })).rejects.toThrow('ENOENT');
  });

  it('is gone once its abort is reported', async () => {
    const abort = new AbortController();
    const running = runProgram('sleep', ['602'], { path: PATH, signal: abort.signal });
    running.catch(() => {});
    const find = async () => (await runningProcesses()).find(({ command }) => command === 'sleep 602');
    while ((await find()) === undefined) await sleep(5);
    abort.abort(new Error('not wanted any more'));
    await expect(running).rejects.toThrow('not wanted any more');
    expect(await find()).toBeUndefined();
    await expect(runProgram('true', [], { path: PATH, signal: abort.signal })).rejects.toThrow('not wanted any more');
  });

  it('whose spawner dies is not called a success, and dies with it', async () => {
    const running = runProgram('sleep', ['603'], { path: PATH });
    running.catch(() => {});
    const find = async () => (await runningProcesses()).find(({ command }) => command === 'sleep 603')?.pid;
    while ((await find()) === undefined) await sleep(5);
    await killSpawners();
    await expect(running).rejects.toMatchObject({ name: 'SpawnerLost' });
    await expect.poll(find).toBeUndefined();
  });
});
