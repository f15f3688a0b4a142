/** What of `files`, `startup_script`, `healthcheck` and `expose` is refused, in which order, and in which words. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startTestOrchestrator, type TestOrchestrator } from '../test-orchestrator.ts';

let test: TestOrchestrator;
beforeAll(async () => {
  test = await startTestOrchestrator('postgres');
}, 60_000);
afterAll(() => test[Symbol.asyncDispose]());

interface Refusal {
  fields: Record<string, unknown>;
  field: string;
  message?: RegExp | string;
  status?: number;
  code?: string;
}

const http = { port: 80 };
const base64 = (bytes: number) => Buffer.alloc(bytes).toString('base64');
const KIB = 1_024;

const refused: Refusal[] = [
  // Healthchecks come first.
  { fields: { healthcheck: 'x' }, field: 'healthcheck' },
  { fields: { healthcheck: {} }, field: 'healthcheck', message: /exactly one of http and exec/ },
  { fields: { healthcheck: { http: null, exec: null } }, field: 'healthcheck' },
  { fields: { healthcheck: { http, exec: ['true'] } }, field: 'healthcheck', message: /exactly one of http and exec/ },
  { fields: { healthcheck: { http: { port: 0 } } }, field: 'healthcheck.http.port' },
  { fields: { healthcheck: { http: { port: 65_536 } } }, field: 'healthcheck.http.port' },
  { fields: { healthcheck: { http: { port: 1.5 } } }, field: 'healthcheck.http.port' },
  { fields: { healthcheck: { http: { port: 80, path: 'health' } } }, field: 'healthcheck.http.path' },
  { fields: { healthcheck: { exec: [] } }, field: 'healthcheck.exec' },
  { fields: { healthcheck: { exec: ['test', ' '] } }, field: 'healthcheck.exec', message: /blank/ },
  { fields: { healthcheck: { exec: 'true' } }, field: 'healthcheck.exec' },
  ...['interval_seconds', 'timeout_seconds', 'retries', 'start_period_seconds'].map((name) => ({
    fields: { healthcheck: { http, [name]: -1 } },
    field: `healthcheck.${name}`,
  })),
  {
    fields: { healthcheck: { http, interval_seconds: 5, timeout_seconds: 6 } },
    field: 'healthcheck.timeout_seconds',
    message: /must not be over interval_seconds/,
  },
  { fields: { healthcheck: {}, startup_script_timeout_seconds: -1 }, field: 'healthcheck' },
  { fields: { startup_script_timeout_seconds: -1, files: { x: '' } }, field: 'startup_script_timeout_seconds' },
  { fields: { startup_script_timeout_seconds: 1.5 }, field: 'startup_script_timeout_seconds' },
  { fields: { startup_script: 7 }, field: 'startup_script' },
  { fields: { startup_script: 'a\0b' }, field: 'startup_script', message: /must not hold NUL/ },
  { fields: { startup_script: 'x'.repeat(131_072) }, field: 'startup_script', message: /at most 131071 bytes/ },
  { fields: { expose: [{ port: 0 }] }, field: 'expose.0.port' },
  { fields: { expose: [{}] }, field: 'expose.0.port' },
  { fields: { expose: [{ port: 80, as: 'not a name' }] }, field: 'expose.0.as' },
  { fields: { expose: Array.from({ length: 65 }, () => http) }, field: 'expose' },
  { fields: { wait: 'no' }, field: 'wait' },
  // Files, in the order of their paths.
  { fields: { files: [] }, field: 'files' },
  { fields: { files: { '/a': 7 } }, field: 'files./a' },
  { fields: { files: { 'etc/x': '' } }, field: 'files.etc/x', message: 'files.etc/x: must be absolute' },
  { fields: { files: { '': '' } }, field: 'files.', message: /must be absolute/ },
  { fields: { files: { '/': '' } }, field: 'files./' },
  { fields: { files: { '/a\nb': '' } }, field: 'files./a\nb', message: /must not hold NUL or newline/ },
  { fields: { files: { '/a\0b': '' } }, field: 'files./a\0b', message: /must not hold NUL or newline/ },
  ...['/a/', '/a//b', '/a/./b', '/a/../b', '/..'].map((path) => ({
    fields: { files: { [path]: '' } },
    field: `files.${path}`,
    message: /must be clean/,
  })),
  { fields: { files: { '/fuse': '' } }, field: 'files./fuse', message: /must not be in \/fuse/ },
  { fields: { files: { '/fuse/env': '' } }, field: 'files./fuse/env', message: /must not be in \/fuse/ },
  { fields: { files: { [`/${'x'.repeat(300)}`]: '' } }, field: `files./${'x'.repeat(199)}` },
  ...['!', 'YQ', 'YQ=', 'Y===', 'YQ==\n', ' YQ==', 'YQ==YQ==', '-_-_', 'é'].map((content) => ({
    fields: { files: { '/a': content } },
    field: 'files./a',
    message: 'files./a: must be standard base64 with padding',
  })),
  { fields: { files: { '/b': '!', '/a': '!' } }, field: 'files./a' },
  { fields: { files: { '/a': base64(600 * KIB), '/b': '!' } }, field: 'files./b' },
  {
    fields: { files: { '/a': base64(256 * KIB), '/b': base64(256 * KIB + 1) } },
    field: 'files',
    status: 413,
    code: 'payload_too_large',
  },
  {
    fields: { files: Object.fromEntries(Array.from({ length: 2_001 }, (_, at) => [`/f${at}`, ''])) },
    field: 'files',
    message: /at most 2000 files/,
  },
  {
    fields: { startup_script: 'true', startup_script_timeout_seconds: 56 },
    field: 'startup_script_timeout_seconds',
    message: /^startup script timeout exceeds the configured maximum: 56s > 55s$/,
  },
  {
    fields: { wait: false, startup_script_timeout_seconds: 604_801 },
    field: 'startup_script_timeout_seconds',
    message: /^startup script timeout exceeds the configured maximum: 604801s > 604800s$/,
  },
];

it.each(refused)('refuses $fields', async ({ fields, field, message, status = 400, code = 'invalid_argument' }) => {
  const answer = await test.call('POST', '/v1/environments', { task_id: 't', ...fields });
  expect(answer.body.error).toMatchObject({
    code,
    details: { field },
    ...(message === undefined
      ? {}
      : { message: typeof message === 'string' ? message : expect.stringMatching(message) }),
  });
  expect(answer.status).toBe(status);
});

it('a refused create leaves nothing behind', async () => {
  expect((await test.call('GET', '/v1/environments')).body.environments).toEqual([]);
  expect(test.host.createdVms).toBe(0);
});

it('exactly 512 KiB of files are taken', async () => {
  const files = { '/a/full': base64(512 * KIB), '/b': '' };
  const made = await test.call('POST', '/v1/environments', { task_id: 'full', files });
  expect(made.status).toBe(201);
  await test.call('DELETE', `/v1/environments/${made.body.id}`);
});
