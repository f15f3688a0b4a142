import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { access, mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { KeptProcess } from './kept-process.ts';
import { runningProcesses } from './processes.ts';

const directoryOfOwn = () => mkdtemp(join(tmpdir(), 'fuse-kept-'));

const exists = (path: string) =>
  access(path).then(
    () => true,
    () => false,
  );

async function gone(directory: string): Promise<boolean> {
  const running = await runningProcesses();
  return !(await exists(directory)) && !running.some((each) => each.command.includes(directory));
}

async function becomesGone(directory: string): Promise<void> {
  for (const deadline = performance.now() + 15_000; !(await gone(directory)); await delay(20)) {
    if (performance.now() > deadline) throw new Error(`${directory} or its process is still there`);
  }
}

/** A process that keeps `tail -f` in `directory`, as a test run keeps its servers. */
async function startOwner(directory: string): Promise<ChildProcess> {
  const module = new URL('../dist/index.js', import.meta.url).href;
  const script = `
    const { KeptProcess } = await import(${JSON.stringify(module)});
    const directory = ${JSON.stringify(directory)};
    const kept = await KeptProcess.start({ argv: ['tail', '-f', directory + '/server.log'], directory, stopSignal: 'TERM' });
    await kept.whenReady('tail', async () => true);
    console.log('ready');
    setInterval(() => {}, 1000);
  `;
  const owner = spawn(process.execPath, ['--input-type=module', '-e', script], {
    detached: true,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await once(owner.stdout, 'data');
  return owner;
}

describe('a kept process', () => {
  it('is stopped and its directory removed on dispose', async () => {
    const directory = await directoryOfOwn();
    const kept = await KeptProcess.start({
      argv: ['tail', '-f', join(directory, 'server.log')],
      directory,
      stopSignal: 'TERM',
    });
    expect(await gone(directory)).toBe(false);
    await kept[Symbol.asyncDispose]();
    expect(await gone(directory)).toBe(true);
    await kept[Symbol.asyncDispose]();
  });

  it.each(['SIGKILL', 'SIGTERM'] as const)('goes when its owner dies of %s', async (signal) => {
    const directory = await directoryOfOwn();
    const owner = await startOwner(directory);
    expect(await gone(directory)).toBe(false);
    owner.kill(signal);
    await becomesGone(directory);
  });

  it('goes when the terminal interrupts the whole process group', async () => {
    const directory = await directoryOfOwn();
    const owner = await startOwner(directory);
    process.kill(-(owner.pid ?? Number.NaN), 'SIGINT');
    await becomesGone(directory);
  });

  it('is killed when it ignores its stop signal', async () => {
    const directory = await directoryOfOwn();
    const argv = ['sh', '-c', 'trap "" TERM; echo ready >"$1/ready"; while :; do sleep 0.2; done', 'sh', directory];
    const kept = await KeptProcess.start({ argv, directory, stopSignal: 'TERM' });
    await kept.whenReady('the stubborn one', () => exists(join(directory, 'ready')));
    await kept[Symbol.asyncDispose]();
    await becomesGone(directory);
  }, 30_000);

  it('shows the log of a server that does not start, and leaves nothing', async () => {
    const directory = await directoryOfOwn();
    const argv = ['sh', '-c', 'echo no such port >&2; sleep 0.1; exit 3'];
    const kept = await KeptProcess.start({ argv, directory, stopSignal: 'TERM' });
    await expect(kept.whenReady('the server', async () => false)).rejects.toThrow(
      /the server ended at once[\s\S]*no such port/,
    );
    expect(await gone(directory)).toBe(true);
  });
});
