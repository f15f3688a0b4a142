/**
 * Files of a running environment. Paths are absolute; they are the guest's, and nothing of them reaches the host. Operations act as root; a symlink as the
 * last part of a path is acted on itself (stat, move, remove, chown) or followed (read, list, edit, search), as POSIX tools do.
 *
 *   GET  /v1/environments/{id}/files?path=            -> 200 bytes; `Range: bytes=` -> 206. Headers Content-Length, Fuse-File-Mode, Fuse-File-Uid,
 *                                                        Fuse-File-Gid, Last-Modified. 404, 409 not a regular file. HEAD too
 *   PUT  /v1/environments/{id}/files?path=&mode=&uid=&gid=&user=&sha256=&exclusive=1   bytes -> 201 FileWritten. A temporary file, then rename: readers see
 *                                                        the old or the new one whole. Parents are made. Mode and owner of a replaced file stay unless given. Devices and the like are never replaced
 *   POST /v1/environments/{id}/files/{operation}      JSON, `fileOperations` below
 *   GET  /v1/environments/{id}/files/watch?path=&recursive=1  -> 200 ndjson of WatchEvent; the first line is {"type":"ready"}
 *   GET  /v1/environments/{id}/tar?path=              -> 200 a tar (pax) of the directory or file; a directory as `./…` below itself, a file under its own name. Sockets are left out
 *   PUT  /v1/environments/{id}/tar?path=&uid=&gid=&user=  a tar -> 200 TarIn: extracted below the directory, which is made. Symlinks are made
 *                                                        as they stand, but nothing is written through one that leaves the directory. Absolute names, `..`, hard links that
 *                                                        leave it, and devices are 400; what was extracted before stays and is counted in details
 * Errors: 400 invalid_argument, 404 not_found, 409 conflict with details.reason: exists, not_a_directory, is_a_directory, not_a_regular_file, not_empty,
 * no_match, ambiguous, stale_patch, changed, too_large, not_text; 413 payload_too_large; 507-like "no space" is 409 details.reason=no_space. details.path names the file.
 */
import { z } from 'zod';
import { UserName } from './exec.ts';
import { absentIfNull, Timestamp } from './primitives.ts';

/** Absolute, without NUL. Not necessarily clean: the guest cleans it. Newlines and all other bytes are legal in names. */
export const AnyGuestPath = z
  .string()
  .min(1)
  .max(4096)
  .refine((path) => path.startsWith('/'), 'must be absolute')
  .refine((path) => !path.includes('\0'), 'must not hold NUL');

export const FileMode = z.string().regex(/^[0-7]{1,5}$/, 'must be octal permission bits such as "0644"');
const number32 = z.number().int().min(0).max(4_294_967_294);
/** A name of the image's accounts, or numbers. */
const owner = { user: absentIfNull(UserName), uid: absentIfNull(number32), gid: absentIfNull(number32) };

export const fileTypes = [
  'file',
  'directory',
  'symlink',
  'fifo',
  'socket',
  'block_device',
  'character_device',
] as const;
export const FileInfo = z.object({
  path: z.string(),
  name: z.string(),
  type: z.enum(fileTypes),
  size_bytes: z.number().int(),
  /** Four octal digits. */
  mode: z.string(),
  uid: z.number().int(),
  gid: z.number().int(),
  user: z.string().optional(),
  group: z.string().optional(),
  modified_at: Timestamp,
  /** Of a symlink, as it stands there. */
  target: z.string().optional(),
  /** Its name is not UTF-8: what is shown has U+FFFD, and cannot be used as a path. */
  bad_name: z.boolean().optional(),
});
export type FileInfo = z.infer<typeof FileInfo>;

export const FileWritten = z.object({ path: z.string(), size_bytes: z.number().int(), sha256: z.string() });
export type FileWritten = z.infer<typeof FileWritten>;

export const MAX_LISTED = 10_000;
const done = z.object({});

/** `old_text` must occur exactly once, unless `replace_all`; edits are applied one after the other, all or none. */
const TextEdit = z.object({
  old_text: z.string().min(1).max(1_048_576),
  new_text: z.string().max(1_048_576),
  replace_all: absentIfNull(z.boolean()),
});
export type TextEdit = z.infer<typeof TextEdit>;

/** name -> what it takes and what it answers. The same on all three hops: API, host agent, guest. */
export const fileOperations = {
  /** `follow`: of a symlink, what it leads to. */
  stat: { request: z.object({ path: AnyGuestPath, follow: absentIfNull(z.boolean()) }), response: FileInfo },
  list: {
    request: z.object({
      path: AnyGuestPath,
      recursive: absentIfNull(z.boolean()),
      max_depth: absentIfNull(z.number().int().min(1).max(128)),
      limit: absentIfNull(z.number().int().min(1).max(MAX_LISTED)),
      /** Paths that come after this one in the order of the listing (bytewise by path): the next page. */
      after: absentIfNull(z.string().max(4096)),
    }),
    response: z.object({ entries: z.array(FileInfo).max(MAX_LISTED), truncated: z.boolean() }),
  },
  mkdir: {
    request: z.object({
      path: AnyGuestPath,
      parents: absentIfNull(z.boolean()),
      mode: absentIfNull(FileMode),
      ...owner,
    }),
    response: FileInfo,
  },
  /** Across file systems too. An existing target is 409 `exists` unless `overwrite`. */
  move: {
    request: z.object({ from: AnyGuestPath, to: AnyGuestPath, overwrite: absentIfNull(z.boolean()) }),
    response: FileInfo,
  },
  /** Mode, owner and times are kept, symlinks stay links; a directory needs `recursive`. */
  copy: {
    request: z.object({
      from: AnyGuestPath,
      to: AnyGuestPath,
      recursive: absentIfNull(z.boolean()),
      overwrite: absentIfNull(z.boolean()),
    }),
    response: FileInfo,
  },
  /** `missing_ok`: no error when it is not there. */
  remove: {
    request: z.object({
      path: AnyGuestPath,
      recursive: absentIfNull(z.boolean()),
      missing_ok: absentIfNull(z.boolean()),
    }),
    response: z.object({ removed: z.number().int() }),
  },
  symlink: { request: z.object({ path: AnyGuestPath, target: z.string().min(1).max(4095) }), response: FileInfo },
  chmod: {
    request: z.object({ path: AnyGuestPath, mode: FileMode, recursive: absentIfNull(z.boolean()) }),
    response: done,
  },
  chown: { request: z.object({ path: AnyGuestPath, ...owner, recursive: absentIfNull(z.boolean()) }), response: done },
  /** Patterns as of outputs (`**`, no symlink followed), relative to `cwd` unless absolute. */
  glob: {
    request: z.object({
      cwd: absentIfNull(AnyGuestPath),
      patterns: z.array(z.string().min(1).max(4096)).min(1).max(64),
      limit: absentIfNull(z.number().int().min(1).max(MAX_LISTED)),
    }),
    response: z.object({ entries: z.array(FileInfo).max(MAX_LISTED), truncated: z.boolean() }),
  },
  /** In text files at or below `path`; `pattern` is RE2 unless `literal`. Binary files and files over 16 MiB are passed over and counted. */
  search: {
    request: z.object({
      path: AnyGuestPath,
      pattern: z.string().min(1).max(4096),
      literal: absentIfNull(z.boolean()),
      ignore_case: absentIfNull(z.boolean()),
      /** Only files whose name (without `/`) or path below `path` matches one. */
      include: absentIfNull(z.array(z.string().min(1).max(4096)).max(64)),
      exclude: absentIfNull(z.array(z.string().min(1).max(4096)).max(64)),
      /** Lines around each match. */
      context: absentIfNull(z.number().int().min(0).max(20)),
      limit: absentIfNull(z.number().int().min(1).max(MAX_LISTED)),
    }),
    response: z.object({
      matches: z
        .array(
          z.object({
            path: z.string(),
            /** From 1; the column is in bytes of the line, from 1. */
            line: z.number().int(),
            column: z.number().int(),
            /** Cut at 2 000 bytes. */
            text: z.string(),
            before: z.array(z.string()).optional(),
            after: z.array(z.string()).optional(),
          }),
        )
        .max(MAX_LISTED),
      truncated: z.boolean(),
      files_searched: z.number().int(),
      files_skipped: z.number().int(),
    }),
  },
  /** Of a UTF-8 text file of at most 16 MiB. 409 no_match, or ambiguous (details.matches, details.lines), with the edit's number, from 1, in details.edit. */
  edit: {
    request: z.object({
      path: AnyGuestPath,
      edits: z.array(TextEdit).min(1).max(100),
      /** The file must be this one still: 409 `changed` otherwise. */
      expect_sha256: absentIfNull(z.string().regex(/^[0-9a-f]{64}$/)),
    }),
    response: z.object({ replacements: z.number().int(), sha256: z.string(), size_bytes: z.number().int() }),
  },
  /**
   * A unified diff (of one or several files, `--- a/x +++ b/x`, /dev/null for made and removed ones, git's renames refused), paths relative to `cwd` with
   * `strip` leading parts taken off (default 1). All hunks of all files apply, at their line or as near to it as their context is found exactly, or nothing is
   * changed: 409 stale_patch with details.path, details.hunk (from 1), details.expected and details.found.
   */
  patch: {
    request: z.object({
      cwd: AnyGuestPath,
      patch: z.string().min(1).max(1_048_576),
      strip: absentIfNull(z.number().int().min(0).max(16)),
    }),
    response: z.object({
      files: z
        .array(
          z.object({
            path: z.string(),
            action: z.enum(['modified', 'created', 'removed']),
            hunks: z.number().int(),
            /** The farthest that a hunk was from its line. */
            moved_lines: z.number().int(),
          }),
        )
        .max(1_000),
    }),
  },
} as const satisfies Record<string, { request: z.ZodType; response: z.ZodType }>;

export type FileOperation = keyof typeof fileOperations;
export type FileRequest<Name extends FileOperation> = z.infer<(typeof fileOperations)[Name]['request']>;
export type FileResponse<Name extends FileOperation> = z.infer<(typeof fileOperations)[Name]['response']>;
/** Bytes of a request's JSON. */
export const FILE_OPERATION_LIMIT_BYTES = 2_621_440;

/** `overflow`: events were lost, look for yourself. `heartbeat` comes while nothing does. The watched path gone: `removed`, then the end. */
export const WatchEvent = z.object({
  type: z.enum([
    'ready',
    'created',
    'modified',
    'removed',
    'moved_from',
    'moved_to',
    'attributes',
    'overflow',
    'heartbeat',
  ]),
  path: z.string().optional(),
  is_directory: z.boolean().optional(),
});
export type WatchEvent = z.infer<typeof WatchEvent>;

export const TarIn = z.object({
  files: z.number().int(),
  directories: z.number().int(),
  links: z.number().int(),
  bytes: z.number().int(),
});
export type TarIn = z.infer<typeof TarIn>;
