import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestOrchestrator, type TestOrchestrator } from '../test-orchestrator.ts';

const command = { cmd: ['true'] };
const long = (length: number) => 'x'.repeat(length);

/** Body, and the field that the refusal names. */
const bodies: [string, unknown, string][] = [
  ['nothing', undefined, ''],
  ['an empty object', {}, 'cmd'],
  ['a list', [], '(body)'],
  ['a number', 7, '(body)'],
  ['null', null, ''],
  ['two commands', { cmd: ['a'], shell: 'b' }, 'cmd'],
  ['an empty command', { cmd: [] }, 'cmd'],
  ['an empty program name', { cmd: [''] }, 'cmd'],
  ['a command that is a string', { cmd: 'true' }, 'cmd'],
  ['an argument that is a number', { cmd: ['echo', 1] }, 'cmd.1'],
  ['an argument with NUL', { cmd: ['a\0b'] }, 'cmd.0'],
  ['too many arguments', { cmd: Array(5_000).fill('a') }, 'cmd'],
  ['half a surrogate pair', '{"cmd":["\\ud800"]}', 'cmd.0'],
  ['an empty shell line', { shell: '' }, 'shell'],
  ['code without a language', { code: 'x' }, 'language'],
  ['an unknown language', { code: 'x', language: 'cobol' }, 'language'],
  ['a language without code', { ...command, language: 'python' }, 'language'],
  ['an unknown image', { ...command, image: 'nope' }, 'image'],
  ['an image with NUL', { ...command, image: 'a\0b' }, 'image'],
  ['no cpus', { ...command, limits: { cpus: 0 } }, 'limits.cpus'],
  ['negative cpus', { ...command, limits: { cpus: -1 } }, 'limits.cpus'],
  ['half a cpu', { ...command, limits: { cpus: 0.5 } }, 'limits.cpus'],
  ['cpus as text', { ...command, limits: { cpus: '1' } }, 'limits.cpus'],
  ['negative memory', { ...command, limits: { ram_mb: -512 } }, 'limits.ram_mb'],
  ['too little memory', { ...command, limits: { ram_mb: 1 } }, 'limits.ram_mb'],
  ['negative storage', { ...command, limits: { storage_gb: -1 } }, 'limits.storage_gb'],
  ['no time', { ...command, limits: { timeout_ms: 0 } }, 'limits.timeout_ms'],
  ['negative time', { ...command, limits: { timeout_ms: -1 } }, 'limits.timeout_ms'],
  ['two days', { ...command, limits: { timeout_ms: 172_800_000 } }, 'limits.timeout_ms'],
  ['an unknown limit', { ...command, limits: { ram: 1 } }, 'limits.ram'],
  ['an env name with =', { ...command, env: { 'A=B': 'x' } }, 'env.A=B'],
  ['an env value with NUL', { ...command, env: { A: 'x\0' } }, 'env.A'],
  ['an env value that is a number', { ...command, env: { A: 1 } }, 'env.A'],
  ['a relative cwd', { ...command, cwd: 'x' }, 'cwd'],
  ['a cwd that climbs', { ...command, cwd: '/a/../b' }, 'cwd'],
  ['two kinds of stdin', { ...command, stdin: 'a', stdin_base64: 'YQ==' }, 'stdin'],
  ['stdin that is no base64', { ...command, stdin_base64: '@@' }, 'stdin_base64'],
  ['base64 without padding', { ...command, stdin_base64: 'YQ' }, 'stdin_base64'],
  ['stdin from an unknown file', { ...command, stdin_file_id: 'file-none' }, 'stdin_file_id'],
  ['a file without content', { ...command, files: [{ path: 'a' }] }, 'files.0'],
  ['a file with two contents', { ...command, files: [{ path: 'a', content: '', file_id: 'x' }] }, 'files.0'],
  ['a file that is no base64', { ...command, files: [{ path: 'a', content_base64: 'a' }] }, 'files.0.content_base64'],
  ['a file that climbs', { ...command, files: [{ path: '../a', content: '' }] }, 'files.0.path'],
  ['a file without a name', { ...command, files: [{ path: '', content: '' }] }, 'files.0.path'],
  ['a file with an odd mode', { ...command, files: [{ path: 'a', content: '', mode: '4755' }] }, 'files.0.mode'],
  ['a file with an unknown field', { ...command, files: [{ path: 'a', content: '', owner: 'x' }] }, 'files.0.owner'],
  ['a file that was never uploaded', { ...command, files: [{ path: 'a', file_id: 'file-none' }] }, 'files.0.file_id'],
  [
    'two files of one path',
    {
      ...command,
      files: [
        { path: 'a', content: '' },
        { path: './a', content: '' },
      ],
    },
    'files.1.path',
  ],
  ['an output that climbs', { ...command, outputs: ['ok', '../*'] }, 'outputs.1'],
  ['an output on /proc', { ...command, outputs: ['/proc/1/environ'] }, 'outputs.0'],
  ['an empty output', { ...command, outputs: [''] }, 'outputs.0'],
  ['an output with NUL', { ...command, outputs: ['a\0'] }, 'outputs.0'],
  ['an output with an unfinished set', { ...command, outputs: ['ok', 'a[b'] }, 'outputs.1'],
  ['an output with an empty set', { ...command, outputs: ['[]'] }, 'outputs.0'],
  ['an output with a set of nothing but `!`', { ...command, outputs: ['d/[!]'] }, 'outputs.0'],
  ['an output with half a range', { ...command, outputs: ['[a-]'] }, 'outputs.0'],
  ['an output with a trailing backslash', { ...command, outputs: ['a\\'] }, 'outputs.0'],
  ['an output that names no file', { ...command, outputs: ['./'] }, 'outputs.0'],
  ['too many outputs', { ...command, outputs: Array(101).fill('a') }, 'outputs'],
  ['a label that is none', { ...command, labels: { 'a b': 'c' } }, 'labels.a b'],
  ['a label value that is none', { ...command, labels: { a: '/' } }, 'labels.a'],
  ['an unknown encoding', { ...command, encoding: 'latin1' }, 'encoding'],
  ['negative patience', { ...command, queue_timeout_ms: -1 }, 'queue_timeout_ms'],
  ['wait as text', { ...command, wait: 'yes' }, 'wait'],
  ['an argument over what Linux takes', { cmd: ['echo', long(131_072)] }, 'cmd.1'],
];

describe('a request that is wrong', () => {
  let system: TestOrchestrator;
  beforeAll(async () => {
    system = await startTestOrchestrator('postgres');
  }, 60_000);
  afterAll(async () => system[Symbol.asyncDispose]());

  it.each(bodies)('is refused with code and field: %s', async (_what, body, field) => {
    const answer = await system.call('POST', '/v1/runs', body);
    expect(answer.status, JSON.stringify(answer.body)).toBe(400);
    expect(answer.body.error.code).toBe('invalid_argument');
    expect(answer.body.error.message).not.toBe('');
    if (field !== '') expect(answer.body.error.details?.field).toBe(field);
  });

  it('is refused when it is too large', async () => {
    const answer = await system.call('POST', '/v1/runs', { ...command, stdin: long(33 * 1024 * 1024) });
    expect(answer.status).toBe(413);
    expect(answer.body.error.code).toBe('payload_too_large');
  });

  it('names the images that exist', async () => {
    const answer = await system.call('POST', '/v1/runs', { ...command, image: 'nope' });
    expect(answer.body.error.message).toContain('nope');
    expect(answer.body.error.hint).toContain('base');
  });

  it.each([
    ['GET', '/v1/runs?label=nothing', 400, 'label'],
    ['GET', '/v1/runs?cursor=!', 400, 'cursor'],
    ['POST', '/v1/runs/run-x', 400, 'action'],
    ['POST', '/v1/runs/run-x?action=explode', 400, 'action'],
    ['GET', '/v1/runs/run-x', 404, undefined],
    ['GET', '/v1/runs/run-x/outputs', 404, undefined],
    ['GET', '/v1/runs/run-x/outputs/a/b', 404, undefined],
    ['GET', `/v1/runs/${'x'.repeat(500)}`, 404, undefined],
    ['GET', '/v1/runs/%00', 400, undefined],
    ['GET', '/v1/files/file-x', 404, undefined],
    ['DELETE', '/v1/files/file-x', 404, undefined],
    ['DELETE', '/v1/runs/run-x', 405, undefined],
  ])('is refused: %s %s', async (method, path, status, field) => {
    const answer = await system.call(method, path);
    expect(answer.status).toBe(status);
    if (field !== undefined) expect(answer.body.error.details.field).toBe(field);
  });

  it('left nothing behind', async () => {
    expect((await system.call('GET', '/v1/runs')).body.runs).toEqual([]);
    expect(system.host.createdVms).toBe(0);
  });

  it.each(['/v1/runs', '/v1/runs/x', '/v1/runs/x/events', '/v1/runs/x/outputs', '/v1/runs/x/outputs/a', '/v1/files/x'])(
    'is refused without credentials: %s',
    async (path) => {
      const response = await fetch(`${system.orchestrator.url}${path}`);
      expect(response.status).toBe(401);
    },
  );
});
