/** A `CreateRun` body made definite: defaults applied, paths resolved, nothing left to interpret. Pure. */
import {
  type CreateRun,
  canonicalPolicy,
  DEFAULT_IMAGE,
  DEFAULT_SHAPE,
  type Encoding,
  invalidField,
  type NetworkPolicy,
  RUN_DEFAULT_QUEUE_TIMEOUT_MS,
  RUN_DEFAULT_TIMEOUT_MS,
  RUN_WORKSPACE,
} from '@fuse/contract';
import type { Shape } from '@fuse/host-protocol';
import type { SealedJson } from '../secrets/sealed-json.ts';
import { onPseudoFileSystem, refuseCollisions, resolveInputPath } from './guest-path.ts';
import { checkArguments, programOf } from './program.ts';

export type Content = { bytes: Uint8Array } | { fileId: string; field: string };

export interface PlannedFile {
  path: string;
  mode: string;
  content: Content;
}

export interface RunPlan {
  image: string;
  shape: Shape;
  timeoutMs: number;
  queueTimeoutMs: number;
  labels: Record<string, string>;
  /** As asked for; undefined: as its tenant has it. */
  network: NetworkPolicy | undefined;
  argv: string[];
  env: Record<string, string>;
  cwd: string;
  outputs: string[];
  encoding: Encoding;
  files: PlannedFile[];
  stdin: Content | undefined;
}

/** What of a request may hold secrets. */
export interface RunCommand {
  argv: string[];
  env: Record<string, string>;
}

/** `runs.request`: the plan with every byte in the object store. */
export interface StoredRequest {
  command: SealedJson<RunCommand>;
  cwd: string;
  outputs: string[];
  encoding: Encoding;
  files: { path: string; mode: string; object_key: string; sha256: string; size_bytes: number }[];
  stdin_object_key?: string;
}

/** As it is before it is sealed. */
export type PreparedRequest = Omit<StoredRequest, 'command'> & RunCommand;

const DEFAULT_FILE_MODE = '0644';

export function planRun(body: CreateRun): RunPlan {
  const program = programOf(body);
  const env = { ...program.env, ...body.env };
  checkArguments(body, program.argv, env);
  const cwd = body.cwd ?? RUN_WORKSPACE;
  const limits = body.limits ?? {};
  return {
    image: body.image ?? DEFAULT_IMAGE,
    shape: {
      cpus: limits.cpus ?? DEFAULT_SHAPE.cpus,
      ram_mb: limits.ram_mb ?? DEFAULT_SHAPE.ram_mb,
      storage_gb: limits.storage_gb ?? DEFAULT_SHAPE.storage_gb,
    },
    timeoutMs: limits.timeout_ms ?? RUN_DEFAULT_TIMEOUT_MS,
    queueTimeoutMs: body.queue_timeout_ms ?? RUN_DEFAULT_QUEUE_TIMEOUT_MS,
    labels: body.labels ?? {},
    network: body.network && canonicalPolicy(body.network),
    argv: program.argv,
    env,
    cwd,
    outputs: checkedGlobs(body.outputs ?? []),
    encoding: body.encoding ?? 'utf8',
    files: [...codeFile(program.file), ...inputFiles(body)],
    stdin: stdinOf(body),
  };
}

const codeFile = (file: { path: string; content: string } | undefined): PlannedFile[] =>
  file === undefined
    ? []
    : [{ path: file.path, mode: DEFAULT_FILE_MODE, content: { bytes: Buffer.from(file.content, 'utf8') } }];

function inputFiles(body: CreateRun): PlannedFile[] {
  const files = (body.files ?? []).map((file, index) => ({
    path: resolveInputPath(file.path, `files.${index}.path`),
    field: `files.${index}.path`,
    mode: (file.mode ?? DEFAULT_FILE_MODE).padStart(4, '0'),
    content: contentOf(file.content, file.content_base64, file.file_id, `files.${index}.file_id`),
  }));
  refuseCollisions(files);
  return files.map(({ path, mode, content }) => ({ path, mode, content: content ?? { bytes: new Uint8Array() } }));
}

const stdinOf = (body: CreateRun): Content | undefined =>
  contentOf(body.stdin, body.stdin_base64, body.stdin_file_id, 'stdin_file_id');

function contentOf(
  text: string | undefined,
  base64: string | undefined,
  fileId: string | undefined,
  field: string,
): Content | undefined {
  if (text !== undefined) return { bytes: Buffer.from(text, 'utf8') };
  if (base64 !== undefined) return { bytes: Buffer.from(base64, 'base64') };
  return fileId === undefined ? undefined : { fileId, field };
}

function checkedGlobs(globs: readonly string[]): string[] {
  globs.forEach((glob, index) => {
    if (onPseudoFileSystem(glob))
      throw invalidField(`outputs.${index}`, 'lies on /proc, /sys or /dev, which hold no files');
  });
  return [...new Set(globs)];
}
