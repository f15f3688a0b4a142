import { execFile } from 'node:child_process';
import { mkdir, open, readdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type TemporaryDirectory, temporaryDirectory } from '@fuse/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { endSpawner } from './children.ts';
import { copyHostileFile, removeHostileDirectory } from './hostile-file.ts';
import { connectUnixSocket } from './unix-socket.ts';

let directory: TemporaryDirectory;
const at = (name: string) => join(directory.path, name);
beforeEach(async () => {
  directory = await temporaryDirectory();
  await writeFile(at('secret'), 'of the host');
});
afterEach(async () => {
  await directory[Symbol.asyncDispose]();
  await endSpawner();
});

describe('a file that a VMM wrote', () => {
  it('is copied when it is a plain one', async () => {
    await writeFile(at('devices'), 'x'.repeat(3_000_000));
    await copyHostileFile(at('devices'), at('copy'), 3_000_000);
    expect((await readFile(at('copy'))).length).toBe(3_000_000);
  });

  const traps: [string, (path: string) => Promise<unknown>][] = [
    ['a link to a file of the host', (path) => symlink(at('secret'), path)],
    ['a pipe that nobody writes', (path) => promisify(execFile)('mkfifo', [path])],
    ['a device', (path) => promisify(execFile)('mknod', [path, 'c', '1', '5'])],
    ['a directory', (path) => mkdir(path)],
    ['larger than it may be', (path) => writeFile(path, 'x'.repeat(2_000_000))],
    [
      'a large hole',
      async (path) => {
        const file = await open(path, 'w');
        await file.truncate(1024 ** 4);
        await file.close();
      },
    ],
  ];
  it.each(traps)('is refused when it is %s, and nothing is left', async (_what, plant) => {
    await plant(at('devices'));
    await expect(copyHostileFile(at('devices'), at('copy'), 1_000_000)).rejects.toThrow();
    expect(await readdir(directory.path)).not.toContain('copy');
  });

  it('goes with its directory, however deep that is', async () => {
    const script = 'mkdir top && cd top && for i in $(seq 40); do mkdir $1 && cd -P $1; done; touch file';
    await promisify(execFile)('sh', ['-c', script, 'sh', 'd'.repeat(250)], { cwd: directory.path });
    await removeHostileDirectory(at('top'));
    expect(await readdir(directory.path)).toEqual(['secret']);
  });
});

describe('a socket that a VMM made', () => {
  it('is connected to, whatever the length of its path', async () => {
    const long = at('d'.repeat(150));
    await mkdir(long);
    const server = createServer((socket) => socket.end('hello'));
    const handle = await open(long);
    await new Promise<void>((resolve) => server.listen(`/proc/self/fd/${handle.fd}/a.sock`, resolve));
    const socket = await connectUnixSocket(long, 'a.sock');
    expect((await socket.toArray()).join('')).toBe('hello');
    await symlink(join(long, 'a.sock'), at('b.sock'));
    await expect(connectUnixSocket(directory.path, 'b.sock')).rejects.toThrow();
    await new Promise((resolve) => server.close(resolve));
    await handle.close();
  });

  it('is refused when it is none', async () => {
    await expect(connectUnixSocket(directory.path, 'secret')).rejects.toThrow('is no socket');
    await expect(connectUnixSocket(directory.path, 'none')).rejects.toMatchObject({ code: 'ENOENT' });
  });
});
