/** The files of a test host's "VMs": a directory is the guest's root. What tests of the API need of host-protocol's file, tar and watch routes. */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { createReadStream, createWriteStream, type Stats, watch } from 'node:fs';
import {
  chmod,
  cp,
  lstat,
  mkdir,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { basename, dirname, join } from 'node:path';
import { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { AppError, type FileInfo, type FileOperation, type FileRequest, fileOperations } from '@fuse/contract';

export interface FileCall {
  method: string;
  query: URLSearchParams;
  body: unknown;
  request: IncomingMessage;
  response: ServerResponse;
}

type Answer = { status: number; body?: unknown } | 'streamed';

/** Bodies of these are bytes. */
export const isFileUpload = (method: string, path: string): boolean =>
  method === 'PUT' && /^\/v1\/vms\/[^/]+\/(file|tar)$/.test(path);

export async function serveFiles(root: string, what: 'file' | 'tar' | 'watch', call: FileCall): Promise<Answer> {
  const path = call.query.get('path') ?? '';
  return guarded(path, async () => {
    if (what === 'file') return call.method === 'PUT' ? write(root, path, call) : read(root, path, call);
    if (what === 'tar') return call.method === 'PUT' ? extract(root, path, call) : archive(root, path, call);
    return watchTree(root, path, call);
  });
}

async function read(root: string, path: string, { query, response }: FileCall): Promise<Answer> {
  const file = join(root, path);
  const info = await stat(file);
  if (!info.isFile()) throw conflict('not_a_regular_file', path);
  const start = Number(query.get('start') ?? 0);
  const end = Math.min(Number(query.get('end') ?? info.size), info.size);
  response.writeHead(200, {
    'content-length': end - start,
    'file-size': info.size,
    'file-mode': modeOf(info),
    'file-uid': info.uid,
    'file-gid': info.gid,
    'file-modified-ms': Math.floor(info.mtimeMs),
  });
  if (end === start) response.end();
  else await pipeline(createReadStream(file, { start, end: end - 1 }), response).catch(() => {});
  return 'streamed';
}

async function write(root: string, path: string, { query, request }: FileCall): Promise<Answer> {
  const file = join(root, path);
  const there = await stat(file).catch(() => undefined);
  if (there !== undefined && query.get('exclusive') === '1') throw conflict('exists', path);
  if (there?.isDirectory() === true) throw conflict('is_a_directory', path);
  await mkdir(dirname(file), { recursive: true }).catch((error: NodeJS.ErrnoException) => {
    throw error.code === 'EEXIST' ? conflict('not_a_directory', path) : error;
  });
  const partial = `${file}.partial`;
  const sum = createHash('sha256');
  let size = 0;
  const counted = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      sum.update(chunk);
      size += chunk.length;
      done(null, chunk);
    },
  });
  try {
    await pipeline(request, counted, createWriteStream(partial));
    const sha256 = sum.digest('hex');
    const expected = query.get('sha256');
    if (expected !== null && expected !== sha256)
      throw new AppError('invalid_argument', 'sha256: is not the sum of the bytes that came', {
        details: { field: 'sha256' },
      });
    const mode = query.get('mode') ?? (there === undefined ? '0644' : modeOf(there));
    await chmod(partial, Number.parseInt(mode, 8));
    await rename(partial, file);
    return { status: 201, body: { size_bytes: size, sha256 } };
  } finally {
    await rm(partial, { force: true });
  }
}

async function archive(root: string, path: string, { response }: FileCall): Promise<Answer> {
  const target = join(root, path);
  const isDirectory = (await stat(target)).isDirectory();
  const child = spawn('tar', isDirectory ? ['-cC', target, '.'] : ['-cC', dirname(target), basename(target)]);
  response.writeHead(200, { 'content-type': 'application/octet-stream' });
  await pipeline(child.stdout, response).catch(() => child.kill());
  return 'streamed';
}

async function extract(root: string, path: string, { request }: FileCall): Promise<Answer> {
  const target = join(root, path);
  await mkdir(target, { recursive: true });
  const child = spawn('tar', ['-xC', target], { stdio: ['pipe', 'ignore', 'ignore'] });
  const ended = new Promise<number | null>((resolve) => child.once('exit', resolve));
  await pipeline(request, child.stdin).catch(() => child.kill());
  if ((await ended) !== 0) throw new AppError('invalid_argument', 'this is no tar', { details: { files: '0' } });
  const entries = await readdir(target, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile()).length;
  return { status: 200, body: { files, directories: entries.length - files, links: 0, bytes: 0 } };
}

async function watchTree(root: string, path: string, { query, response }: FileCall): Promise<Answer> {
  const target = join(root, path);
  await stat(target);
  response.writeHead(200);
  const tell = (event: object) => response.write(`${JSON.stringify(event)}\n`);
  const watcher = watch(target, { recursive: query.get('recursive') === '1' }, (_kind, name) =>
    tell({ type: 'modified', path: join(path, name ?? '') }),
  );
  watcher.on('error', () => response.destroy());
  tell({ type: 'ready' });
  await new Promise((resolve) => response.once('close', resolve));
  watcher.close();
  return 'streamed';
}

type Operations = { [Name in FileOperation]?: (root: string, request: FileRequest<Name>) => Promise<unknown> };

const operations: Operations = {
  stat: (root, { path, follow }) => infoOf(root, path, follow === true),
  async list(root, { path, recursive, limit = 10_000 }) {
    const names = (await readdir(join(root, path), { recursive: recursive === true })).sort();
    const entries = await Promise.all(names.slice(0, limit).map((name) => infoOf(root, join(path, name))));
    return { entries, truncated: names.length > limit };
  },
  async mkdir(root, { path, parents }) {
    await mkdir(join(root, path), { recursive: parents === true });
    return infoOf(root, path);
  },
  async move(root, { from, to, overwrite }) {
    await refuseExisting(root, to, overwrite);
    await rename(join(root, from), join(root, to));
    return infoOf(root, to);
  },
  async copy(root, { from, to, recursive, overwrite }) {
    await refuseExisting(root, to, overwrite);
    if ((await lstat(join(root, from))).isDirectory() && recursive !== true) throw conflict('is_a_directory', from);
    await cp(join(root, from), join(root, to), { recursive: true });
    return infoOf(root, to);
  },
  async remove(root, { path, recursive, missing_ok }) {
    const there = await lstat(join(root, path)).catch(() => undefined);
    if (there === undefined && missing_ok === true) return { removed: 0 };
    const isFull = there?.isDirectory() === true && (await readdir(join(root, path))).length > 0;
    if (isFull && recursive !== true) throw conflict('not_empty', path);
    await rm(join(root, path), { recursive: true });
    return { removed: 1 };
  },
  async symlink(root, { path, target }) {
    await symlink(target, join(root, path));
    return infoOf(root, path);
  },
  async chmod(root, { path, mode }) {
    await chmod(join(root, path), Number.parseInt(mode, 8));
    return {};
  },
  async edit(root, { path, edits }) {
    let text = await readFile(join(root, path), 'utf8');
    for (const [at, { old_text, new_text }] of edits.entries()) {
      const matches = text.split(old_text).length - 1;
      if (matches !== 1)
        throw new AppError('conflict', `edit ${at}: old_text is in ${path} ${matches} times`, {
          details: { reason: matches === 0 ? 'no_match' : 'ambiguous', path, edit: String(at) },
        });
      text = text.replace(old_text, () => new_text);
    }
    await writeFile(join(root, path), text);
    const sha256 = createHash('sha256').update(text).digest('hex');
    return { replacements: edits.length, sha256, size_bytes: Buffer.byteLength(text) };
  },
};

export function operateOnFiles(root: string, name: string, body: unknown): Promise<Answer> {
  const operation = name as FileOperation; // one that it is not is refused right here
  const work = operations[operation] as ((root: string, request: unknown) => Promise<unknown>) | undefined;
  if (work === undefined) throw new AppError('unimplemented', `a test host has no file operation "${name}"`);
  const request = fileOperations[operation].request.parse(body);
  const path = 'path' in request ? request.path : 'from' in request ? request.from : '';
  return guarded(path, async () => ({ status: 200, body: await work(root, request) }));
}

async function refuseExisting(root: string, path: string, overwrite: boolean | undefined): Promise<void> {
  if (overwrite === true) return;
  if ((await lstat(join(root, path)).catch(() => undefined)) !== undefined) throw conflict('exists', path);
}

async function infoOf(root: string, path: string, follow = false): Promise<FileInfo> {
  const file = join(root, path);
  const info = await (follow ? stat(file) : lstat(file));
  return {
    path,
    name: basename(path),
    type: info.isDirectory() ? 'directory' : info.isSymbolicLink() ? 'symlink' : 'file',
    size_bytes: info.size,
    mode: modeOf(info),
    uid: info.uid,
    gid: info.gid,
    modified_at: info.mtime.toISOString(),
    ...(info.isSymbolicLink() ? { target: await readlink(file) } : {}),
  };
}

const modeOf = (info: Stats): string => (info.mode & 0o7777).toString(8).padStart(4, '0');

const conflict = (reason: string, path: string): AppError =>
  new AppError('conflict', `${path}: ${reason.replaceAll('_', ' ')}`, { details: { reason, path } });

const reasons: Record<string, string> = { EEXIST: 'exists', ENOTDIR: 'not_a_directory', EISDIR: 'is_a_directory' };

async function guarded(path: string, work: () => Promise<Answer>): Promise<Answer> {
  try {
    return await work();
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? '';
    if (code === 'ENOENT') throw new AppError('not_found', `${path}: no such file`, { details: { path } });
    const reason = reasons[code];
    throw reason === undefined ? error : conflict(reason, path);
  }
}
