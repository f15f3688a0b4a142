import {
  type FileInfo,
  type FileOperation,
  type FileRequest,
  type FileResponse,
  FileWritten,
  fileOperations,
  TarIn,
  type TextEdit,
  type WatchEvent,
} from '@fuse/contract';
import type { z } from 'zod';
import { environmentPath } from './environment-path.ts';
import { isNotFound } from './errors.ts';
import { type ByteRange, bodyOf, type OpenedFile, openFile } from './file-reading.ts';
import type { FileContent } from './files.ts';
import type { CallOptions } from './run-outputs.ts';
import type { Transport } from './transport.ts';
import { uploadStream } from './upload-stream.ts';
import { type WatchOptions, watchFiles } from './watch-files.ts';

export interface ReadOptions extends CallOptions, ByteRange {}

export interface Ownership {
  /** A name of the image's accounts, or numbers. */
  user?: string | undefined;
  uid?: number | undefined;
  gid?: number | undefined;
}

export interface WriteOptions extends CallOptions, Ownership {
  /** Permission bits, `0o644` or `"0644"`. Absent: those of the file that is replaced, or 0644. */
  mode?: number | string;
  /** Refused with `details.reason: exists` when there is one. */
  exclusive?: boolean;
  /** Hex; other bytes are refused and nothing is replaced. */
  sha256?: string;
}

export interface ListOptions extends CallOptions {
  recursive?: boolean;
  maxDepth?: number;
  limit?: number;
  /** The page after this path. */
  after?: string;
}

export type SearchOptions = CallOptions & {
  literal?: boolean;
  ignoreCase?: boolean;
  include?: string[];
  exclude?: string[];
  context?: number;
  limit?: number;
};

/**
 * Files of a running environment, as Node's `fs/promises`. Paths are the guest's and absolute. Failures are FuseApiError: `not_found`, or `conflict` whose
 * `details.reason` says why (exists, is_a_directory, not_empty, no_match, no_space, …).
 */
export class RemoteFiles {
  readonly #transport: Transport;
  readonly #path: string;

  constructor(transport: Transport, environmentId: string) {
    this.#transport = transport;
    this.#path = environmentPath(environmentId);
  }

  readFile(path: string, options: ReadOptions & { encoding: 'utf8' }): Promise<string>;
  readFile(path: string, options?: ReadOptions): Promise<Uint8Array>;
  /** `start` and `end` are bytes, `end` included, as in Node. With an encoding invalid bytes become U+FFFD. */
  async readFile(path: string, options: ReadOptions & { encoding?: 'utf8' } = {}): Promise<string | Uint8Array> {
    const { body } = await this.open(path, options);
    const bytes = new Uint8Array(await new Response(body).arrayBuffer());
    return options.encoding === undefined ? bytes : new TextDecoder().decode(bytes);
  }

  /** Rejects when it is not there; after a lost connection it goes on where it was, if the file is still the same. */
  async createReadStream(path: string, options: ReadOptions = {}): Promise<ReadableStream<Uint8Array>> {
    return (await this.open(path, options)).body;
  }

  /** Its bytes with what is known of it beside them. */
  open(path: string, options: ReadOptions = {}): Promise<OpenedFile> {
    return openFile(this.#transport, this.#path, path, options);
  }

  /**
   * A file is replaced as a whole or not at all; its directories are made. Give a function that opens a stream anew to have an upload survive a lost
   * connection.
   */
  writeFile(path: string, data: FileContent | string, options: WriteOptions = {}): Promise<FileWritten> {
    const body = typeof data === 'function' ? data : () => data;
    const again = !(data instanceof ReadableStream) && options.exclusive !== true;
    return this.#put(path, body, options, again ? 'freely' : 'if-unsent');
  }

  /** The file is replaced when the stream has been closed: `close` waits for it. Aborted, or cut, nothing is. */
  createWriteStream(path: string, options: WriteOptions = {}): WritableStream<Uint8Array> {
    return uploadStream((body, signal) => this.#put(path, () => body, { ...options, signal }, 'never'), options.signal);
  }

  /** Of a symlink, what it leads to. */
  stat(path: string, options: CallOptions = {}): Promise<FileInfo> {
    return this.#do('stat', { path, follow: true }, 'freely', options);
  }

  lstat(path: string, options: CallOptions = {}): Promise<FileInfo> {
    return this.#do('stat', { path }, 'freely', options);
  }

  async exists(path: string, options: CallOptions = {}): Promise<boolean> {
    try {
      await this.lstat(path, options);
      return true;
    } catch (error) {
      if (isNotFound(error)) return false;
      throw error;
    }
  }

  /** Everything, in the order of paths; reads as many pages as it takes, or up to `limit`. */
  async readdir(path: string, options: Omit<ListOptions, 'after'> = {}): Promise<FileInfo[]> {
    const { limit = Number.POSITIVE_INFINITY } = options;
    const entries: FileInfo[] = [];
    for (let after: string | undefined; entries.length < limit; ) {
      const left = limit - entries.length;
      const page = await this.listPage(path, {
        ...options,
        limit: Math.min(left, PAGE_LIMIT),
        ...(after === undefined ? {} : { after }),
      });
      entries.push(...page.entries);
      after = page.entries.at(-1)?.path;
      if (!page.truncated || after === undefined) break;
    }
    return entries;
  }

  listPage(path: string, options: ListOptions = {}): Promise<FileResponse<'list'>> {
    const { recursive, maxDepth, limit, after } = options;
    return this.#do('list', { path, recursive, max_depth: maxDepth, limit, after }, 'freely', options);
  }

  mkdir(
    path: string,
    options: CallOptions & Ownership & { recursive?: boolean; mode?: number | string } = {},
  ): Promise<FileInfo> {
    const { recursive, mode, user, uid, gid } = options;
    const request = { path, parents: recursive, mode: modeText(mode), user, uid, gid };
    return this.#do('mkdir', request, recursive === true ? 'freely' : 'if-unsent', options);
  }

  /** Replaces what is at `to`, as POSIX does, unless `overwrite` is false. */
  rename(from: string, to: string, options: CallOptions & { overwrite?: boolean } = {}): Promise<FileInfo> {
    return this.#do('move', { from, to, overwrite: options.overwrite ?? true }, 'if-unsent', options);
  }

  copyFile(from: string, to: string, options: CallOptions & { overwrite?: boolean } = {}): Promise<FileInfo> {
    return this.cp(from, to, options);
  }

  /** Mode, owner and times are kept, symlinks stay links. */
  cp(
    from: string,
    to: string,
    options: CallOptions & { recursive?: boolean; overwrite?: boolean } = {},
  ): Promise<FileInfo> {
    const { recursive, overwrite = true } = options;
    return this.#do('copy', { from, to, recursive, overwrite }, overwrite ? 'freely' : 'if-unsent', options);
  }

  /** How many files and directories went. */
  async rm(path: string, options: CallOptions & { recursive?: boolean; force?: boolean } = {}): Promise<number> {
    const { recursive, force } = options;
    const request = { path, recursive, missing_ok: force };
    return (await this.#do('remove', request, force === true ? 'freely' : 'if-unsent', options)).removed;
  }

  async chmod(path: string, mode: number | string, options: CallOptions & { recursive?: boolean } = {}): Promise<void> {
    const { recursive } = options;
    await this.#do('chmod', { path, mode: modeText(mode) ?? '', recursive }, 'freely', options);
  }

  async chown(path: string, owner: Ownership, options: CallOptions & { recursive?: boolean } = {}): Promise<void> {
    const { recursive } = options;
    await this.#do('chown', { path, ...owner, recursive }, 'freely', options);
  }

  /** Arguments as in Node: what it leads to, then where it is. */
  symlink(target: string, path: string, options: CallOptions = {}): Promise<FileInfo> {
    return this.#do('symlink', { path, target }, 'if-unsent', options);
  }

  /** Patterns (`**` too) are relative to `cwd` unless absolute. */
  glob(
    patterns: string | string[],
    options: CallOptions & { cwd?: string; limit?: number } = {},
  ): Promise<FileResponse<'glob'>> {
    const { cwd, limit } = options;
    return this.#do('glob', { cwd, patterns: [patterns].flat(), limit }, 'freely', options);
  }

  /** Lines of text files at or below `path`. `pattern` is RE2 unless `literal`. */
  search(path: string, pattern: string, options: SearchOptions = {}): Promise<FileResponse<'search'>> {
    const { literal, ignoreCase, include, exclude, context, limit } = options;
    const request = { path, pattern, literal, ignore_case: ignoreCase, include, exclude, context, limit };
    return this.#do('search', request, 'freely', options);
  }

  /** All edits or none. `no_match` and `ambiguous` say which one in `details.edit`. */
  edit(
    path: string,
    edits: TextEdit | TextEdit[],
    options: CallOptions & { expectSha256?: string } = {},
  ): Promise<FileResponse<'edit'>> {
    const request = { path, edits: [edits].flat(), expect_sha256: options.expectSha256 };
    return this.#do('edit', request, 'if-unsent', options);
  }

  /** A unified diff of one or several files; all of it or nothing. */
  applyPatch(
    cwd: string,
    patch: string,
    options: CallOptions & { strip?: number } = {},
  ): Promise<FileResponse<'patch'>> {
    return this.#do('patch', { cwd, patch, strip: options.strip }, 'if-unsent', options);
  }

  /** `ready` first, once everything is watched; `overflow` whenever events may have been missed, also across a lost connection. */
  watch(path: string, options: WatchOptions = {}): AsyncGenerator<WatchEvent, void> {
    return watchFiles(this.#transport, this.#path, path, options);
  }

  /** A tar of a directory (as `./…`) or file; it errors when it is cut. */
  async tar(path: string, options: CallOptions = {}): Promise<ReadableStream<Uint8Array>> {
    const response = await this.#transport.open({
      method: 'GET',
      path: `${this.#path}/tar`,
      query: { path },
      repeat: 'freely',
      timeoutMs: null,
      ...options,
    });
    return bodyOf(response, 'a tar');
  }

  /** Extracted below the directory, which is made. What was extracted before a failure stays. */
  untar(path: string, archive: FileContent, options: CallOptions & Ownership = {}): Promise<TarIn> {
    const { user, uid, gid, signal } = options;
    return this.#transport.json(TarIn, {
      method: 'PUT',
      path: `${this.#path}/tar`,
      query: { path, user, ...numbers({ uid, gid }) },
      headers: { 'Content-Type': 'application/x-tar' },
      body: typeof archive === 'function' ? archive : () => archive,
      repeat: archive instanceof ReadableStream ? 'if-unsent' : 'freely',
      timeoutMs: null,
      signal,
    });
  }

  #put(
    path: string,
    body: () => string | Uint8Array | Blob | ReadableStream<Uint8Array>,
    options: WriteOptions,
    repeat: 'freely' | 'if-unsent' | 'never',
  ): Promise<FileWritten> {
    const { mode, user, uid, gid, exclusive, sha256, signal } = options;
    return this.#transport.json(FileWritten, {
      method: 'PUT',
      path: `${this.#path}/files`,
      query: {
        path,
        mode: modeText(mode),
        user,
        ...numbers({ uid, gid }),
        exclusive: exclusive === true ? '1' : undefined,
        sha256,
      },
      headers: { 'Content-Type': 'application/octet-stream' },
      body,
      repeat,
      timeoutMs: null,
      signal,
    });
  }

  #do<Name extends FileOperation>(
    operation: Name,
    json: FileRequest<Name>,
    repeat: 'freely' | 'if-unsent',
    { signal }: CallOptions,
  ): Promise<FileResponse<Name>> {
    const schema: z.ZodType<FileResponse<Name>> = fileOperations[operation].response as never; // the table's rows, which TypeScript does not tie to their names
    return this.#transport.json(schema, {
      method: 'POST',
      path: `${this.#path}/files/${operation}`,
      json,
      repeat,
      signal,
    });
  }
}

const PAGE_LIMIT = 10_000;

const modeText = (mode: number | string | undefined): string | undefined =>
  typeof mode === 'number' ? (mode & 0o7777).toString(8).padStart(4, '0') : mode;

/** 0 is somebody. */
const numbers = ({ uid, gid }: Ownership) => ({ uid: uid?.toString(), gid: gid?.toString() });
