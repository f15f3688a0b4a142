import { CreateRun } from '@fuse/contract';
import { describe, expect, it } from 'vitest';
import { planRun } from './request.ts';

const plan = (body: unknown) => planRun(CreateRun.parse(body));
const refused = (body: unknown): { field: string | undefined; message: string } => {
  try {
    plan(body);
  } catch (error) {
    const { details, message } = error as { details?: { field?: string }; message: string };
    return { field: details?.field, message };
  }
  throw new Error('it was accepted');
};

describe('a plan', () => {
  it('fills in what the client left out', () => {
    expect(plan({ cmd: ['true'] })).toEqual({
      image: 'base',
      shape: { cpus: 1, ram_mb: 512, storage_gb: 2 },
      timeoutMs: 300_000,
      queueTimeoutMs: 60_000,
      labels: {},
      argv: ['true'],
      env: {},
      cwd: '/workspace',
      outputs: [],
      encoding: 'utf8',
      files: [],
      stdin: undefined,
    });
  });

  it('gives a shell line to a login shell, and a long one as a file', () => {
    expect(plan({ shell: 'echo "$HOME"' }).argv).toEqual(['sh', '-lc', 'echo "$HOME"']);
    const line = `echo ${'x'.repeat(200_000)}`;
    const long = plan({ shell: line });
    expect(long.argv).toEqual(['sh', '-l', '/tmp/fuse/main.sh']);
    expect(long.files).toEqual([{ path: '/tmp/fuse/main.sh', mode: '0644', content: { bytes: Buffer.from(line) } }]);
  });

  it.each([
    ['python', 'print(1)', ['python3', '-u', '/tmp/fuse/main.py']],
    ['javascript', 'console.log(require("fs"))', ['node', '/tmp/fuse/main.cjs']],
    ['javascript', 'import fs from "node:fs";', ['node', '/tmp/fuse/main.mjs']],
    ['javascript', 'const a = 1;\nexport { a };', ['node', '/tmp/fuse/main.mjs']],
    ['javascript', 'const important = import("fs");', ['node', '/tmp/fuse/main.cjs']],
    ['shell', 'echo hi', ['sh', '/tmp/fuse/main.sh']],
  ])('writes %s code to a file outside the workspace', (language, code, argv) => {
    const planned = plan({ code, language });
    expect(planned.argv).toEqual(argv);
    expect(planned.files.map(({ path }) => path)).toEqual([argv.at(-1)]);
  });

  it('lets Python import what lies in the working directory, unless the client says where', () => {
    expect(plan({ code: '', language: 'python', cwd: '/data' }).env).toEqual({ PYTHONPATH: '/data' });
    expect(plan({ code: '', language: 'python', env: { PYTHONPATH: '/x' } }).env).toEqual({ PYTHONPATH: '/x' });
  });

  it('puts relative files into the workspace', () => {
    const files = [
      { path: 'a.txt', content: 'a' },
      { path: './b//c.txt', content_base64: 'AP8=' },
      { path: '/data/d', file_id: 'file-1', mode: '755' },
    ];
    expect(plan({ cmd: ['true'], files }).files).toEqual([
      { path: '/workspace/a.txt', mode: '0644', content: { bytes: Buffer.from('a') } },
      { path: '/workspace/b/c.txt', mode: '0644', content: { bytes: Buffer.from([0, 255]) } },
      { path: '/data/d', mode: '0755', content: { fileId: 'file-1', field: 'files.2.file_id' } },
    ]);
  });

  it.each([
    '../x',
    'a/../../x',
    '/workspace/../etc/passwd',
    '..',
    'dir/',
    '.',
    '/',
    '/workspace',
    '/proc/self/mem',
    '/dev/sda',
    '/sys/x',
    '/tmp/fuse/main.py',
    'a\0b',
    'a\nb',
    `/${'x'.repeat(256)}`,
    `/${'ü'.repeat(128)}`,
  ])('refuses a file at %j', (path) => {
    expect(refused({ cmd: ['true'], files: [{ path, content: '' }] }).field).toBe('files.0.path');
  });

  it('takes odd names', () => {
    for (const path of ['-rf', "it's", '$(reboot)', 'a b', '😀', '...', 'x'.repeat(255)])
      expect(plan({ cmd: ['true'], files: [{ path, content: '' }] }).files[0]?.path).toBe(`/workspace/${path}`);
  });

  it('refuses two files of one path, and a file below a file', () => {
    const twice = [
      { path: 'a', content: '' },
      { path: '/workspace/./a', content: '' },
    ];
    expect(refused({ cmd: ['true'], files: twice })).toEqual({
      field: 'files.1.path',
      message: 'files.1.path: is the same file as files.0.path',
    });
    const below = [
      { path: 'a/b/c', content: '' },
      { path: 'a', content: '' },
    ];
    expect(refused({ cmd: ['true'], files: below }).field).toBe('files.0.path');
  });

  it('refuses what the kernel of the guest would refuse', () => {
    expect(refused({ cmd: ['echo', 'ü'.repeat(65_536)] }).field).toBe('cmd.1');
    expect(refused({ cmd: Array.from({ length: 20 }, () => 'x'.repeat(100_000)) }).field).toBe('cmd');
    expect(refused({ cmd: ['env'], env: { A: 'ü'.repeat(65_535) } }).field).toBe('env.A');
    expect(refused({ shell: 'a\0b' }).field).toBe('shell');
  });

  it('refuses globs on file systems that hold no files', () => {
    expect(refused({ cmd: ['true'], outputs: ['*.json', '/proc/**'] }).field).toBe('outputs.1');
  });
});
