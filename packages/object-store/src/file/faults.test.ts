import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, copyFile, mkdir, readdir, readFile, rm, stat, truncate, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { type TemporaryDirectory, temporaryDirectory } from '@fuse/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { drain, patternSha256, patternStream } from '../pattern.fixture.ts';
import { FileStore } from './file-store.ts';
import { temporaryName } from './leftovers.ts';

const run = promisify(execFile);
const isRoot = process.getuid?.() === 0;
const MIB = 1024 * 1024;
const built = (file: string) => JSON.stringify(new URL(`../../dist/${file}`, import.meta.url).href);

describe('file store under faults', () => {
  let directory: TemporaryDirectory;
  let root: string;
  let store: FileStore;
  beforeEach(async () => {
    directory = await temporaryDirectory();
    root = join(directory.path, 'store');
    store = new FileStore(root);
    await store.check();
  });
  afterEach(() => directory[Symbol.asyncDispose]());
  const pathOf = (key: string) => join(root, 'objects', key);

  it('shows whole objects only, each at least as new as acknowledged, after kills at any point', async () => {
    const sizeOf = (seed: number) => (seed * 700_001) % (3 * MIB);
    const script = `
      const { openObjectStore } = await import(${built('index.js')});
      const { patternStream } = await import(${built('pattern.fixture.js')});
      const store = await openObjectStore({ kind: 'file', directory: ${JSON.stringify(root)} });
      const sizeOf = ${String(sizeOf).replace('MIB', String(MIB))};
      for (let seed = Number(process.argv[1]); ; seed += 1) {
        await store.put('k/' + seed % 3, patternStream(sizeOf(seed), seed));
        console.log(seed);
      }`;
    const acknowledged = new Map<string, number>();
    let swept = 0;
    for (let round = 0, seed = 1; round < 12; round += 1) {
      const child = spawn(process.execPath, ['--input-type=module', '-e', script, String(seed)], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      const ended = once(child, 'exit');
      for await (const line of createInterface(child.stdout)) {
        seed = Number(line) + 1;
        acknowledged.set(`k/${Number(line) % 3}`, Number(line));
        setTimeout(() => child.kill('SIGKILL'), (round * 7) % 30);
      }
      await ended;
      seed += 1; // of the put that was cut, whose bytes may have become visible
      swept += (await readdir(join(root, 'tmp'))).length;
      await store.check();
      expect(await readdir(join(root, 'tmp'))).toEqual([]);
      for (const [key, atLeast] of acknowledged) {
        const { info, body } = await store.get(key);
        expect((await drain(body)).error).toBeUndefined();
        const found = [...Array(400).keys()]
          .map((more) => atLeast + more)
          .find((each) => patternSha256(sizeOf(each), each) === info.sha256);
        expect(found, `${key} holds none of the puts since ${atLeast}`).toBeDefined();
      }
    }
    expect(swept, 'no kill hit a put in progress').toBeGreaterThan(0);
  }, 120_000);

  it("sweeps what is not a living process's, and day-old files of processes it cannot see", async () => {
    const tmp = join(root, 'tmp');
    const living = await temporaryName();
    const [namespace, pid] = living.split('.');
    const foreign = `1.${pid}.1.new`;
    const old = `1.${pid}.1.old`;
    for (const name of [living, foreign, old, `${namespace}.${pid}.1.reused`, `${namespace}.999999999.1.dead`])
      await writeFile(join(tmp, name), 'x');
    await utimes(join(tmp, old), 0, 0);
    await store.check();
    expect((await readdir(tmp)).sort()).toEqual([living, foreign].sort());
  });

  it('sweeps what a process left that is dead and not reaped yet', async () => {
    // The shell becomes a program that never waits for the child it started.
    const parent = spawn('sh', ['-c', 'sleep 0.2 & echo $!; exec sleep 60']);
    try {
      const [line] = await once(createInterface(parent.stdout), 'line');
      const pid = Number(line);
      const fields = async () => (await readFile(`/proc/${pid}/stat`, 'utf8')).split(') ')[1]?.split(' ') ?? [];
      await expect.poll(async () => (await fields())[0]).toBe('Z');
      const [namespace] = (await temporaryName()).split('.');
      await writeFile(join(root, 'tmp', `${namespace}.${pid}.${(await fields())[19]}.left`), 'x');
      await store.check();
      expect(await readdir(join(root, 'tmp'))).toEqual([]);
    } finally {
      parent.kill('SIGKILL');
    }
  });

  it('refuses a file whose end is missing, whose metadata is damaged, or that it did not write', async () => {
    await store.put('whole', patternStream(100_000));
    const fileBytes = (await stat(pathOf('whole'))).size;
    const damaged = async (change: (path: string) => Promise<void>) => {
      await copyFile(pathOf('whole'), pathOf('copy'));
      await change(pathOf('copy'));
      await expect(store.head('copy')).rejects.toMatchObject({ code: 'integrity_error' });
      await expect(store.get('copy')).rejects.toMatchObject({ code: 'integrity_error' });
    };
    await damaged((path) => truncate(path, fileBytes - 1));
    await damaged((path) => truncate(path, 10));
    await damaged((path) => truncate(path, 0));
    await damaged((path) => truncate(path, fileBytes + 1));
    await damaged((path) => writeFile(path, 'by somebody else'));
    await damaged(async (path) => {
      const changed = await run('sed', ['-i', 's/"contentType":"application/"contentType":"bpplication/', path]);
      expect(changed.stderr).toBe('');
    });
    expect(await store.delete('copy')).toBe(true);
    expect((await drain((await store.get('whole')).body)).sha256).toBe(patternSha256(100_000));
  });

  it('says so when a key is a folder of others or lies below one', async () => {
    await store.put('a/b', Buffer.from('x'));
    await expect(store.put('a', Buffer.from('y'))).rejects.toMatchObject({ code: 'conflict' });
    await expect(store.put('a/b/c', Buffer.from('y'))).rejects.toMatchObject({ code: 'conflict' });
    expect(await readdir(join(root, 'tmp'))).toEqual([]);
  });

  it('removes the folders that a delete leaves empty and no others', async () => {
    await store.put('a/b/c/d', Buffer.from('x'));
    await store.put('a/e', Buffer.from('x'));
    await store.delete('a/b/c/d');
    expect(await readdir(join(root, 'objects'), { recursive: true })).toEqual(['a', 'a/e']);
    await store.deletePrefix('a');
    expect(await readdir(join(root, 'objects'))).toEqual([]);
  });

  it('tells at the start that its directory refuses access', async () => {
    const locked = join(directory.path, 'locked');
    await mkdir(locked);
    await chmod(locked, 0);
    const script = `
      const { openObjectStore } = await import(${built('index.js')});
      const store = await openObjectStore({ kind: 'file', directory: ${JSON.stringify(join(locked, 'store'))} });
      if (process.getuid() === 0) process.seteuid(65534);
      await store.check().catch(({ code, message, hint, details }) => console.log(JSON.stringify({ code, message, hint, details })));`;
    const { stdout } = await run(process.execPath, ['--input-type=module', '-e', script]);
    await chmod(locked, 0o700);
    expect(JSON.parse(stdout)).toEqual({
      code: 'unavailable',
      message: `object store directory ${join(locked, 'store')}: the object store's directory refuses access (EACCES)`,
      hint: 'let the user that Fuse runs as read and write it',
      details: { reason: 'permission' },
    });
  });

  it('tells at the start that its directory is a file', async () => {
    await writeFile(join(directory.path, 'file'), '');
    const onFile = new FileStore(join(directory.path, 'file', 'store'));
    await expect(onFile.check()).rejects.toMatchObject({
      code: 'unavailable',
      message: expect.stringContaining('file/store'),
    });
  });

  it.skipIf(!isRoot)('says that the disk is full, keeps what it has and works again when there is room', async () => {
    const small = join(directory.path, 'small');
    await mkdir(small);
    await run('mount', ['-t', 'tmpfs', '-o', 'size=8m', 'tmpfs', small]);
    try {
      const full = new FileStore(small);
      await full.check();
      await full.put('kept', patternStream(MIB));
      const put = full.put('large', patternStream(16 * MIB));
      await expect(put).rejects.toMatchObject({
        code: 'unavailable',
        details: { reason: 'full' },
        message: 'the object store has no space left',
      });
      expect(await readdir(join(small, 'tmp'))).toEqual([]);
      expect((await drain((await full.get('kept')).body)).sha256).toBe(patternSha256(MIB));
      expect((await full.put('small', patternStream(2 * MIB))).sizeBytes).toBe(2 * MIB);
      await run('mount', ['-o', 'remount,ro', small]);
      await expect(full.put('x', Buffer.from('x'))).rejects.toMatchObject({ details: { reason: 'permission' } });
      await expect(full.delete('kept')).rejects.toMatchObject({ details: { reason: 'permission' } });
    } finally {
      await run('umount', [small]);
    }
  });

  it('works before its directory was made', async () => {
    await rm(root, { recursive: true });
    await store.put('a', Buffer.from('x'));
    expect((await store.head('a')).sizeBytes).toBe(1);
  });
});
