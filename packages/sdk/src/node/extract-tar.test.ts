import { execFile } from 'node:child_process';
import {
  chmod,
  link,
  lstat,
  mkdir,
  mkdtemp,
  open,
  readdir,
  readFile,
  readlink,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import fc from 'fast-check';
import { pack } from 'tar-stream';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { CopyCount } from './copy-options.ts';
import { extractTar } from './extract-tar.ts';
import { packDirectory } from './pack-directory.ts';
import { UnsafeArchiveError } from './safe-target.ts';

let home: string;
let target: string;
let outside: string;
beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'fuse-sdk-tar-'));
  target = join(home, 'target');
  outside = join(home, 'outside');
  await mkdir(target);
  await mkdir(outside);
  await writeFile(join(outside, 'precious'), 'mine');
});
afterEach(() => rm(home, { recursive: true, force: true }));

type Entry = Parameters<ReturnType<typeof pack>['entry']>[0] & { content?: string | Uint8Array };

async function bytesOf(entries: Entry[]): Promise<Uint8Array> {
  const archive = pack();
  for (const { content, ...header } of entries) {
    if (content === undefined) archive.entry(header);
    else archive.entry(header, content as string);
  }
  archive.finalize();
  const chunks: Uint8Array[] = [];
  for await (const chunk of archive) chunks.push(chunk as Uint8Array);
  return Buffer.concat(chunks);
}

const streamOfBytes = (bytes: Uint8Array, size = 777): ReadableStream<Uint8Array> =>
  ReadableStream.from(
    (function* () {
      for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
    })(),
  );

async function extracted(entries: Entry[], isNew = false): Promise<CopyCount> {
  const count = new CopyCount({});
  await extractTar(streamOfBytes(await bytesOf(entries)), target, { count, isNew, signal: undefined });
  return count;
}

async function tree(directory: string, prefix = ''): Promise<string[]> {
  const names: string[] = [];
  for (const entry of await readdir(directory, { withFileTypes: true })) {
    names.push(prefix + entry.name);
    if (entry.isDirectory()) names.push(...(await tree(join(directory, entry.name), `${prefix}${entry.name}/`)));
  }
  return names.sort();
}

describe('a tar of a guest', () => {
  it('becomes files, directories and links, with their modes', async () => {
    const count = await extracted([
      { name: './', type: 'directory', mode: 0o700 },
      { name: './a/', type: 'directory', mode: 0o500 },
      { name: './a/run.sh', mode: 0o750, mtime: new Date(1_700_000_000_000), content: 'echo' },
      { name: './a/link', type: 'symlink', linkname: 'run.sh' },
      { name: './empty', mode: 0o600, content: '' },
      { name: './a/same', type: 'link', linkname: './a/run.sh' },
    ]);
    expect(await tree(target)).toEqual(['a', 'a/link', 'a/run.sh', 'a/same', 'empty']);
    expect(await readFile(join(target, 'a/same'), 'utf8')).toBe('echo');
    expect(await readlink(join(target, 'a/link'))).toBe('run.sh');
    const { mode, mtimeMs } = await stat(join(target, 'a/run.sh'));
    expect([mode & 0o7777, mtimeMs]).toEqual([0o750, 1_700_000_000_000]);
    expect((await stat(join(target, 'a'))).mode & 0o7777).toBe(0o500);
    expect((await stat(target)).mode & 0o7777, 'a directory that was there keeps its mode').toBe(0o755);
    expect(count).toMatchObject({ files: 3, directories: 1, links: 1, bytes: 4, skipped: [] });
  });

  it.each(['/etc/evil', '../evil', 'a/../../evil', './../evil', '..', 'a/..'])('named %j is refused', async (name) => {
    for (const type of ['file', 'directory', 'symlink'] as const)
      await expect(
        extracted([{ name, type, linkname: 'x', ...(type === 'file' ? { content: 'evil' } : {}) } as Entry]),
      ).rejects.toBeInstanceOf(UnsafeArchiveError);
    expect(await tree(home)).toEqual(['outside', 'outside/precious', 'target']);
  });

  it('never writes through a link that it brought itself', async () => {
    const through: Entry[] = [
      { name: 'dir', type: 'symlink', linkname: '../outside' },
      { name: 'dir/precious', content: 'evil' },
    ];
    await extracted(through);
    expect(await readFile(join(outside, 'precious'), 'utf8')).toBe('mine');
    expect((await lstat(join(target, 'dir'))).isDirectory()).toBe(true);
  });

  it('never writes through a link that stood there', async () => {
    await symlink(outside, join(target, 'dir'));
    await symlink(join(outside, 'precious'), join(target, 'file'));
    await expect(extracted([{ name: 'dir/precious', content: 'evil' }])).rejects.toThrow(/a symbolic link/);
    await expect(extracted([{ name: 'dir/deeper/', type: 'directory' }])).rejects.toThrow(/a symbolic link/);
    await extracted([
      { name: 'file', content: 'theirs' },
      { name: 'dir/', type: 'directory', mode: 0o777 },
    ]);
    expect(await readFile(join(target, 'file'), 'utf8')).toBe('theirs');
    expect((await lstat(join(target, 'dir'))).isDirectory()).toBe(true);
    expect(await tree(outside)).toEqual(['precious']);
    expect(await readFile(join(outside, 'precious'), 'utf8')).toBe('mine');
  });

  it('does not change a file that stood there under another name too', async () => {
    await link(join(outside, 'precious'), join(target, 'twin'));
    await extracted([{ name: 'twin', content: 'theirs' }]);
    expect(await readFile(join(outside, 'precious'), 'utf8')).toBe('mine');
  });

  it('leaves out what leads out and what is no file, and tells it', async () => {
    const count = await extracted([
      { name: 'up', type: 'symlink', linkname: '../outside' },
      { name: 'a/up', type: 'symlink', linkname: '../../outside/precious' },
      { name: 'abs', type: 'symlink', linkname: '/etc/passwd' },
      { name: 'hard', type: 'link', linkname: '../outside/precious' },
      { name: 'hard2', type: 'link', linkname: '/etc/passwd' },
      { name: 'null', type: 'character-device', devmajor: 1, devminor: 3 },
      { name: 'disk', type: 'block-device', devmajor: 8, devminor: 0 },
      { name: 'pipe', type: 'fifo' },
      { name: 'good', content: 'x' },
    ]);
    expect((await tree(target)).filter((name) => name !== 'a')).toEqual(['good']);
    expect(count.skipped.map(({ path, reason }) => `${path} ${reason}`).sort()).toEqual([
      'a/up link_leads_out',
      'abs link_leads_out',
      'disk special_file',
      'hard link_leads_out',
      'hard2 link_leads_out',
      'null special_file',
      'pipe special_file',
      'up link_leads_out',
    ]);
  });

  it('is not given hard links to symbolic ones', async () => {
    await symlink(join(outside, 'precious'), join(target, 'old'));
    const count = await extracted([{ name: 'new', type: 'link', linkname: 'old' }]);
    expect(count.skipped).toEqual([{ path: 'new', reason: 'link_leads_out' }]);
  });

  it('loses setuid, setgid and sticky bits', async () => {
    await extracted([
      { name: 'su', mode: 0o6755, content: '' },
      { name: 'dir/', type: 'directory', mode: 0o7777 },
    ]);
    expect((await stat(join(target, 'su'))).mode & 0o7777).toBe(0o755);
    expect((await stat(join(target, 'dir'))).mode & 0o7777).toBe(0o777);
  });

  it('that is cut fails, and leaves no half file under its name', async () => {
    const bytes = await bytesOf([
      { name: 'whole', content: 'x'.repeat(1000) },
      { name: 'half', content: 'y'.repeat(100_000) },
    ]);
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 2_049, max: 102_000 }), fc.boolean(), async (cut, breaks) => {
        await rm(target, { recursive: true });
        await mkdir(target);
        const stream = ReadableStream.from(
          (async function* () {
            yield* streamOfBytes(bytes.subarray(0, cut));
            if (breaks) throw new Error('the connection broke');
          })(),
        );
        const options = { count: new CopyCount({}), isNew: false, signal: undefined };
        await expect(extractTar(stream, target, options)).rejects.toThrow(breaks ? 'broke' : 'Unexpected end');
        expect(await tree(target)).toEqual(['whole']);
      }),
      { numRuns: 20 },
    );
  });

  it('ends with the reason of an abort', async () => {
    const reason = new Error('enough');
    const never = new ReadableStream<Uint8Array>({ pull: () => new Promise(() => {}) });
    const options = { count: new CopyCount({}), isNew: false, signal: AbortSignal.timeout(50) };
    await expect(extractTar(never, target, options)).rejects.toThrow(/timeout/i);
    const count = new CopyCount({});
    await expect(extractTar(never, target, { count, isNew: false, signal: AbortSignal.abort(reason) })).rejects.toBe(
      reason,
    );
  });

  it('of random bytes is an error or nothing, never a write outside', async () => {
    const valid = await bytesOf([
      { name: 'dir/file', content: 'abc' },
      { name: `${'long/'.repeat(40)}name`, content: 'abc' },
    ]);
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(fc.nat(valid.length - 1), fc.nat(255)), { maxLength: 12 }), async (flips) => {
        const bytes = valid.slice();
        for (const [at, value] of flips) bytes[at] = value;
        const options = { count: new CopyCount({}), isNew: false, signal: undefined };
        await extractTar(streamOfBytes(bytes), target, options).catch(() => {});
        expect(await readdir(home)).toEqual(['outside', 'target']);
      }),
      { numRuns: 100 },
    );
  });
});

describe('a file with holes', () => {
  /** As GNU tar writes it. */
  async function holes(): Promise<Uint8Array> {
    const source = join(home, 'holes');
    await mkdir(source);
    await using file = await open(join(source, 'big'), 'w');
    await file.write('head', 0);
    await file.write('middle', 300_000_000);
    await file.truncate(900_000_000);
    const { stdout } = await promisify(execFile)('tar', ['--format=posix', '-S', '-C', source, '-cf', '-', './big'], {
      encoding: 'buffer',
    });
    return stdout;
  }

  const whole = (bytes: Uint8Array) => new Response(Uint8Array.from(bytes)).body as ReadableStream<Uint8Array>; // of bytes

  it('is made with its holes', async () => {
    const count = new CopyCount({});
    await extractTar(whole(await holes()), target, { count, isNew: true });
    await using file = await open(join(target, 'big'));
    const { size, blocks } = await file.stat();
    expect({ size, isSparse: blocks * 512 < 1_000_000 }).toEqual({ size: 900_000_000, isSparse: true });
    const read = async (at: number, length: number) =>
      (await file.read(Buffer.alloc(length), 0, length, at)).buffer.toString();
    expect([await read(0, 4), await read(300_000_000, 6)]).toEqual(['head', 'middle']);
  });

  it('whose map lies is refused, and leaves nothing', async () => {
    const archive = Buffer.from(await holes());
    const at = archive.lastIndexOf('29999');
    expect(at).toBeGreaterThan(0);
    archive.write('99999', at);
    const count = new CopyCount({});
    await expect(extractTar(whole(archive), target, { count, isNew: true })).rejects.toThrow();
    expect(await readdir(target)).toEqual([]);
  });
});

describe('a directory of this machine', () => {
  it('comes back from its tar as it was', async () => {
    const source = join(home, 'source');
    await mkdir(join(source, 'sub', 'empty'), { recursive: true });
    const contents: Record<string, Uint8Array> = {};
    for (const [name, size] of [
      ['zero', 0],
      ['-dash', 1],
      ['sub/space and\nnewline "$()"', 511],
      [`sub/${'n'.repeat(255)}`, 512],
      ['sub/émoji😀', 70_000],
    ] as const) {
      contents[name] = new Uint8Array(size).map((_, i) => i * 31);
      await writeFile(join(source, name), contents[name]);
    }
    await chmod(join(source, '-dash'), 0o4755);
    await symlink('sub/empty', join(source, 'link'));
    await symlink('/etc', join(source, 'away'));
    const packed = new CopyCount({});
    const count = new CopyCount({});
    await extractTar(packDirectory(source, packed), target, { count, isNew: true, signal: undefined });
    expect(packed).toMatchObject({ links: 2, skipped: [] });
    const skipped = [{ path: 'away', reason: 'link_leads_out' }];
    expect(count).toMatchObject({ files: 5, directories: 2, links: 1, bytes: packed.bytes, skipped });
    for (const [name, bytes] of Object.entries(contents))
      expect(Buffer.compare(await readFile(join(target, name)), bytes), name).toBe(0);
    expect((await stat(join(target, '-dash'))).mode & 0o7777).toBe(0o755);
    expect(await readlink(join(target, 'link'))).toBe('sub/empty');
  });

  it('is let go of when nobody wants its tar any more', async () => {
    const source = join(home, 'source');
    await mkdir(source);
    await writeFile(join(source, 'large'), new Uint8Array(5_000_000));
    const count = new CopyCount({});
    const reader = packDirectory(source, count).getReader();
    await reader.read();
    await reader.cancel();
    const opened = async () => (await readdir('/proc/self/fd')).length;
    const before = await opened();
    for (let i = 0; i < 20; i++) {
      const another = packDirectory(source, new CopyCount({})).getReader();
      await another.read();
      await another.cancel();
    }
    await expect.poll(opened).toBeLessThan(before + 5);
  });
});
