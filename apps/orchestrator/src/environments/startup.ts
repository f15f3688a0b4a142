/** What a create puts into its environment and does in it before it runs: checked and brought into the form that the row keeps. Pure. */
import {
  AppError,
  type CreateEnvironment,
  GuestPath,
  invalidField,
  MAX_CREATE_FILES_BYTES,
  STARTUP_DEFAULT_TIMEOUT_SECONDS,
  STARTUP_MAX_SECONDS,
  STARTUP_MAX_WAITED_SECONDS,
} from '@fuse/contract';
import type { PlannedStartup } from './environment-secrets.ts';
import { confidedOf } from './manifest.ts';
import { isStandardBase64 } from './standard-base64.ts';

/** What a kernel takes as one argument, its final NUL not counted. */
const MAX_SCRIPT_BYTES = 131_071;
/** What a host takes at once. */
const MAX_FILES = 2_000;
/** Ours, in the guest. */
const RESERVED_DIRECTORY = '/fuse';
const MAX_SHOWN_PATH = 200;

/** First failure wins, in the API's order. */
export function checkStartup(request: CreateEnvironment): void {
  checkFiles(request.files ?? {});
  confidedOf(request);
  const script = request.startup_script ?? '';
  if (script.includes('\0')) throw invalidField('startup_script', 'must not hold NUL');
  if (Buffer.byteLength(script) > MAX_SCRIPT_BYTES)
    throw invalidField(
      'startup_script',
      `must be at most ${MAX_SCRIPT_BYTES} bytes`,
      'Put a longer one into "files" and call it.',
    );
  checkTimeout(request);
}

function checkTimeout({ startup_script_timeout_seconds: asked = 0, wait }: CreateEnvironment): void {
  const max = wait === false ? STARTUP_MAX_SECONDS : STARTUP_MAX_WAITED_SECONDS;
  if (asked <= max) return;
  throw new AppError('invalid_argument', `startup script timeout exceeds the configured maximum: ${asked}s > ${max}s`, {
    details: { field: 'startup_script_timeout_seconds' },
    ...(wait === false ? {} : { hint: `With "wait": false it may be up to ${STARTUP_MAX_SECONDS}.` }),
  });
}

function checkFiles(files: Record<string, string>): void {
  const paths = Object.keys(files).sort();
  let bytes = 0;
  for (const path of paths) {
    const content = files[path] ?? '';
    const problem = problemOfPath(path);
    if (problem !== undefined) throw invalidField(fieldOf(path), problem);
    if (!isStandardBase64(content)) throw invalidField(fieldOf(path), 'must be standard base64 with padding');
    bytes += Buffer.byteLength(content, 'base64');
  }
  if (paths.length > MAX_FILES) throw invalidField('files', `at most ${MAX_FILES} files`);
  if (bytes > MAX_CREATE_FILES_BYTES)
    throw new AppError('payload_too_large', `files: ${bytes} bytes are over ${MAX_CREATE_FILES_BYTES} (512 KiB)`, {
      details: { field: 'files' },
      hint: 'Write what is larger once it runs: PUT /v1/environments/{id}/files.',
    });
}

/** Its own length and characters are the client's. */
const fieldOf = (path: string): string => `files.${path.slice(0, MAX_SHOWN_PATH)}`;

function problemOfPath(path: string): string | undefined {
  if (!path.startsWith('/')) return 'must be absolute';
  if (path === '/') return 'must name a file';
  const clean = GuestPath.safeParse(path);
  if (!clean.success) return clean.error.issues[0]?.message ?? 'must be a path';
  if (path === RESERVED_DIRECTORY || path.startsWith(`${RESERVED_DIRECTORY}/`))
    return `must not be in ${RESERVED_DIRECTORY}`;
  return undefined;
}

/** Null: there is nothing to do, and nobody goes on with its start when its driver dies. */
export function startupOf(request: CreateEnvironment): PlannedStartup | null {
  const { files = {}, startup_script: script = '', startup_script_timeout_seconds } = request;
  const waited = request.wait !== false;
  const hasFiles = Object.keys(files).length > 0;
  const confided = confidedOf(request);
  if (waited && !hasFiles && script === '' && confided === undefined) return null;
  return {
    ...confided,
    ...(hasFiles ? { files } : {}),
    ...(script === '' ? {} : { script }),
    timeout_seconds: startup_script_timeout_seconds || STARTUP_DEFAULT_TIMEOUT_SECONDS,
    waited,
  };
}
