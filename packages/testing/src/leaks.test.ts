import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, open, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { expectNoLeaks, resourceSnapshot } from './leaks.ts';
import { type TemporaryDirectory, temporaryDirectory } from './temporary-directory.ts';

describe('leak check', () => {
  let directory: TemporaryDirectory;
  beforeEach(async () => {
    directory = await temporaryDirectory();
  });
  afterEach(() => directory[Symbol.asyncDispose]());

  it('passes when nothing was left', async () => {
    await expectNoLeaks(await resourceSnapshot({ directories: [directory.path], wholeMachine: true }));
  });

  it('names a child that still runs, and waits for one that is just ending', async () => {
    const before = await resourceSnapshot();
    const child = spawn('sleep', ['60'], { stdio: 'ignore' });
    await once(child, 'spawn');
    await expect(expectNoLeaks(before, 0)).rejects.toThrow(`process ${child.pid}`);
    child.kill();
    await expectNoLeaks(before);
  });

  it('finds a grandchild that its parent orphaned, by the directory in its command line', async () => {
    const log = join(directory.path, 'log');
    await writeFile(log, '');
    const before = await resourceSnapshot({ directories: [directory.path] });
    const shell = spawn('sh', ['-c', 'setsid tail -f "$1" >/dev/null & echo $!', 'sh', log], {
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    const ended = once(shell, 'close');
    const [pid] = await once(shell.stdout, 'data');
    await ended;
    await expect(expectNoLeaks(before, 0)).rejects.toThrow(`tail -f ${log}`);
    process.kill(Number(String(pid)));
    await expectNoLeaks(before);
  });

  it('names an open file and a new entry of a watched directory', async () => {
    const path = join(directory.path, 'sub', 'file');
    const before = await resourceSnapshot({ directories: [directory.path] });
    await mkdir(join(directory.path, 'sub'));
    await writeFile(path, '');
    const file = await open(path);
    await expect(expectNoLeaks(before, 0)).rejects.toThrow(`-> ${path}`);
    await file.close();
    await expect(expectNoLeaks(before, 0)).rejects.toThrow(`entry ${path}`);
    await rm(join(directory.path, 'sub'), { recursive: true });
    await expectNoLeaks(before);
  });
});
