/** `fuse run` and its relatives, as a user has them: child processes against the real stack and real VMs. */
import { createHash, randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, open, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { fuse as runFuse, startFuse } from './support/fuse-cli.ts';
import { LocalStack } from './support/local-stack.ts';

let stack: LocalStack;
let directory: string;
beforeAll(async () => {
  stack = await LocalStack.up();
}, 180_000);
afterAll(() => stack?.[Symbol.asyncDispose](), 60_000);
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'fuse-cli-run-'));
});
afterEach(async () => {
  await rm(directory, { recursive: true });
  await noVmIsLeft();
});

const at = (name: string) => join(directory, name);
const env = () => ({ FUSE_URL: stack.url, FUSE_TOKEN: stack.token, XDG_CONFIG_HOME: at('config') });
const fuse = (args: string[], stdin?: Uint8Array | string) =>
  runFuse(args, { env: env(), cwd: directory, ...(stdin === undefined ? {} : { stdin }) });
const start = (args: string[]) => startFuse(args, { env: env(), cwd: directory });
const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

async function noVmIsLeft(): Promise<void> {
  for (const deadline = Date.now() + 15_000; (await stack.vmmPids()).length > 0; await delay(50))
    if (Date.now() > deadline) throw new Error('a VM is left');
}

const runIdIn = (stderr: string): string => /run-[0-9a-z]+/.exec(stderr)?.[0] ?? '';

describe('fuse run', { timeout: 120_000 }, () => {
  it('cancels the run and says why when its output cannot be written', async () => {
    const full = await open('/dev/full', 'w');
    try {
      const cli = startFuse(['run', '--', 'sh', '-c', 'echo hi; sleep 60'], {
        env: env(),
        cwd: directory,
        stdout: full.fd,
      });
      const { code, stderr } = await cli.outcome;
      expect([code, stderr]).toEqual([
        1,
        expect.stringContaining('cannot write to standard output: no space left on device'),
      ]);
      expect((await stack.client.runs.get(runIdIn(stderr))).state).toBe('cancelled');
    } finally {
      await full.close();
    }
  });

  it('gives both streams byte for byte and exits with the code of the command', async () => {
    const script =
      'import sys; sys.stdout.buffer.write(bytes(range(256)) * 900); sys.stderr.buffer.write("é✓漢".encode() * 500); sys.exit(7)';
    const { code, stdout, stderr } = await fuse(['run', '--', 'python3', '-c', script]);
    expect(code).toBe(7);
    expect(sha256(stdout)).toBe(sha256(Buffer.concat(Array(900).fill(Uint8Array.from({ length: 256 }, (_, i) => i)))));
    expect(stderr.startsWith('é✓漢'.repeat(500))).toBe(true);
    expect(stderr).toMatch(/run-\w+: exit 7\n {2}admit .* · start .* · run .* · save .* · destroy /);
  });

  it('says only what the command says when quiet', async () => {
    const { code, stdout, stderr } = await fuse(['run', '--quiet', '--', 'sh', '-c', 'echo out; echo err >&2']);
    expect([code, stdout.toString(), stderr]).toEqual([0, 'out\n', 'err\n']);
  });

  it.each([
    ['hello.py', 'import sys; print("py", sys.argv[1:])', "py ['--x', '1', '--', 'a b']\n"],
    ['hello.mjs', 'console.log("js", JSON.stringify(process.argv.slice(2)))', 'js ["--x","1","--","a b"]\n'],
    ['hello.sh', 'printf "<%s>" "$@"', '<--x><1><--><a b>'],
    ['tool', '#!/usr/bin/env -S python3 -u\nprint("by its first line")\n', 'by its first line\n'],
  ])('runs %s with its arguments', async (name, source, expected) => {
    await writeFile(at(name), source);
    const { code, stdout, stderr } = await fuse(['run', '--quiet', name, '--x', '1', '--', 'a b']);
    expect([code, stdout.toString(), stderr]).toEqual([0, expected, '']);
  });

  it('streams while the command runs', async () => {
    const run = start(['run', '--', 'sh', '-c', 'echo first; sleep 3; echo second']);
    await run.says('first');
    expect(run.child.exitCode).toBeNull();
    const { code, stdout } = await run.outcome;
    expect([code, stdout.toString()]).toEqual([0, 'first\nsecond\n']);
  });

  it('passes on variables, directory, limits and a large standard input', async () => {
    const bytes = randomBytes(3_000_000);
    const args = ['--stdin', '--env', 'A=b c', '--env', 'PASSED', '--cwd', '/tmp', '--cpus', '1', '--ram', '512M'];
    const script = 'echo "$A $PASSED $PWD"; sha256sum';
    const { code, stdout } = await runFuse(['run', '--quiet', ...args, '--', 'sh', '-c', script], {
      env: { ...env(), PASSED: 'on' },
      cwd: directory,
      stdin: bytes,
    });
    expect([code, stdout.toString()]).toEqual([0, `b c on /tmp\n${sha256(bytes)}  -\n`]);
  });

  it('brings files and directories in, with their modes, and takes outputs back', async () => {
    await mkdir(at('src/deep'), { recursive: true });
    await writeFile(at('src/deep/tool'), '#!/bin/sh\ncat "$1"', { mode: 0o755 });
    const large = randomBytes(700_000);
    await writeFile(at('large.bin'), large);
    const args = ['--input', 'src', '--input', 'large.bin:data/in.bin', '--output', 'out/**', '--output-dir', 'saved'];
    const script = 'mkdir -p out/a; src/deep/tool data/in.bin > out/a/copy.bin; : > out/empty';
    const { code, stderr } = await fuse(['run', ...args, '--', 'sh', '-ec', script]);
    expect([code, stderr]).toEqual([0, expect.stringContaining('saved/out/a/copy.bin  683.6 KiB')]);
    expect(sha256(await readFile(at('saved/out/a/copy.bin')))).toBe(sha256(large));
    expect((await stat(at('saved/out/empty'))).size).toBe(0);
  });

  it('saves outputs of a command that fails, and says what it did not save', async () => {
    const script = 'mkdir out; echo x > out/x; ln -s /etc/passwd out/link; exit 3';
    const { code, stderr } = await fuse(['run', '--output', 'out/*', '--', 'sh', '-c', script]);
    expect(code).toBe(3);
    expect(await readdir(at('outputs/out'))).toEqual(['x']);
    expect(stderr).toContain('not saved: out/link: it is a symbolic link');
  });

  it('writes nothing outside its output directory, whatever the guest calls its files', async () => {
    const script = [
      'import os',
      'os.makedirs("o")',
      'names = ["-rf", "a b", "new\\nline", "$(touch pwned)", "\'\\"", "e\\u0301", "\\u00e9", "😀", "\\x1b[31mred", "\\\\..\\\\x", "..."]',
      '[open("o/" + name, "w").write(name) for name in names]',
    ].join('\n');
    await writeFile(at('names.py'), script);
    const { code, stderr } = await fuse(['run', '--output', '**', '--output-dir', 'saved/here', 'names.py']);
    expect(code).toBe(0);
    expect((await readdir(directory)).sort()).toEqual(['names.py', 'saved']);
    expect(await readdir(at('saved'))).toEqual(['here']);
    expect(await readdir(at('saved/here/o'))).toHaveLength(11);
    expect(await readFile(at('saved/here/o/new_line'), 'utf8')).toBe('new\nline');
    expect(stderr).not.toContain('\x1b[31m');
  });

  it('does not follow a link out of its output directory', async () => {
    await mkdir(at('elsewhere'));
    await mkdir(at('outputs'));
    await symlink(at('elsewhere'), at('outputs/sub'));
    const { code, stderr } = await fuse(['run', '--output', '**', '--', 'sh', '-c', 'mkdir sub; echo x > sub/x']);
    expect([code, stderr]).toEqual([1, expect.stringContaining('is in the way of an output')]);
    expect(await readdir(at('elsewhere'))).toEqual([]);
  });

  it('prints the result as JSON', async () => {
    const { code, stdout, stderr } = await fuse([
      'run',
      '--json',
      '--label',
      'a=b',
      '--',
      'sh',
      '-c',
      'echo hi; exit 4',
    ]);
    expect(code).toBe(4);
    expect(stdout.toString()).toContain('{\n  "id": "run-');
    expect(JSON.parse(stdout.toString())).toMatchObject({
      state: 'failed',
      exit_code: 4,
      stdout: 'hi\n',
      labels: { a: 'b' },
      saved_outputs: [],
    });
    expect(stderr).toContain('exit 4');
  });

  it('exits with 124 when time is up, with what had been written', async () => {
    const { code, stdout, stderr } = await fuse([
      'run',
      '--timeout',
      '2s',
      '--',
      'sh',
      '-c',
      'echo before; sleep 60 & wait',
    ]);
    expect([code, stdout.toString()]).toEqual([124, 'before\n']);
    expect(stderr).toContain('timed out after 2.0 s');
  });

  it('runs a command once under one idempotency key', async () => {
    const key = randomBytes(8).toString('hex');
    const args = ['run', '--idempotency-key', key, '--', 'sh', '-c', 'cat /proc/sys/kernel/random/uuid'];
    const [first, second] = [await fuse(args), await fuse(args)];
    expect(second.stdout.toString()).toBe(first.stdout.toString());
    expect(runIdIn(second.stderr)).toBe(runIdIn(first.stderr));
  });
});

describe('a run that cannot be', { timeout: 60_000 }, () => {
  it.each([
    [['run', '--image', 'nope', '--', 'true'], 'there is no image "nope"', 'base'],
    [['run', 'none.py'], 'cannot run none.py: no such file', 'hint: '],
    [['run', '--input', 'none', '--', 'true'], 'cannot read none: no such file', ''],
    [['run', '--output', '../x', '--', 'true'], 'must not hold a ".." part', ''],
    [['run', '--cpus', '200', '--', 'true'], 'no host has sufficient capacity: need 200CPU', ''],
    [['run', '--', '/no/such/program'], 'exec_failed', ''],
    [['run'], 'invalid argument: nothing to run', 'hint: fuse run FILE'],
  ])('%j exits with 1 and says why', async (args, problem, hint) => {
    const { code, stdout, stderr } = await fuse(args);
    expect([code, stdout.toString()]).toEqual([1, '']);
    expect(stderr).toContain(problem);
    expect(stderr).toContain(hint);
    expect(stderr).not.toMatch(/^\s+at /m);
  });

  it('is refused with a bad token, which no message shows', async () => {
    const { code, stderr } = await runFuse(['run', '--', 'true'], { env: { ...env(), FUSE_TOKEN: 'wrong-secret' } });
    expect([code, stderr]).toEqual([1, expect.stringContaining('unauthorized: invalid token')]);
    expect(stderr).not.toContain('wrong-secret');
  });
});

describe('stopping a run', { timeout: 120_000 }, () => {
  it('by Ctrl-C cancels it and leaves no VM', async () => {
    const run = start(['run', '--', 'sh', '-c', 'echo started; sleep 600']);
    await run.says('started');
    run.child.kill('SIGINT');
    const { code, stderr } = await run.outcome;
    expect([code, stderr]).toEqual([130, expect.stringMatching(/run-\w+: cancelled/)]);
    expect((await stack.client.runs.get(runIdIn(stderr))).state).toBe('cancelled');
    await noVmIsLeft();
  });

  it('by Ctrl-C while its VM starts cancels it too', async () => {
    const run = start(['run', '--label', 'early=yes', '--', 'sleep', '600']);
    while ((await stack.client.runs.list({ labels: { early: 'yes' } })).length === 0) await delay(20);
    run.child.kill('SIGINT');
    expect((await run.outcome).code).toBe(130);
    const [cancelled] = await stack.client.runs.list({ labels: { early: 'yes' } });
    expect(cancelled?.state).toBe('cancelled');
  });

  it('by a second Ctrl-C leaves at once', async () => {
    const run = start(['run', '--label', 'twice=yes', '--', 'sh', '-c', 'echo started; sleep 600']);
    await run.says('started');
    run.child.kill('SIGINT');
    run.child.kill('SIGINT');
    const startedAt = performance.now();
    expect((await run.outcome).code).toBe(130);
    expect(performance.now() - startedAt).toBeLessThan(5_000);
    for (const { id } of await stack.client.runs.list({ labels: { twice: 'yes' } }))
      await stack.client.runs.cancel(id).catch(() => {}); // the first one may have got through
  });

  it('by closing its output cancels it', async () => {
    const run = start(['run', '--label', 'pipe=yes', '--', 'sh', '-c', 'while :; do echo y; done']);
    await run.says('y');
    run.child.stdout?.destroy();
    expect((await run.outcome).code).toBe(141);
    const [cancelled] = await stack.client.runs.list({ labels: { pipe: 'yes' } });
    expect(cancelled?.state).toBe('cancelled');
  });
});

describe('fuse runs', { timeout: 120_000 }, () => {
  it('lists, shows, prints and follows runs', async () => {
    const run = await stack.client.runs.create({
      shell: 'echo one; sleep 2; echo two; echo err >&2; exit 2',
      labels: { story: 'runs' },
    });
    const followed = await fuse(['runs', 'logs', '-f', run.id]);
    expect([followed.code, followed.stdout.toString(), followed.stderr]).toEqual([0, 'one\ntwo\n', 'err\n']);
    expect((await fuse(['runs', 'logs', run.id])).stdout.toString()).toBe('one\ntwo\n');
    const listed = await fuse(['runs', 'list', '--label', 'story=runs', '-o', 'json']);
    expect(JSON.parse(listed.stdout.toString()).runs).toMatchObject([{ id: run.id, state: 'failed', exit_code: 2 }]);
    expect((await fuse(['runs', 'list'])).stdout.toString()).toMatch(/^ID +STATE +EXIT +IMAGE +RAN +CREATED\n/);
    expect((await fuse(['runs', 'get', run.id])).stdout.toString()).toMatch(/exit code +2\n/);
    expect(JSON.parse((await fuse(['-o', 'json', 'runs', 'get', run.id])).stdout.toString()).id).toBe(run.id);
  });

  it('prints what a run that is going on has written so far', async () => {
    const run = await stack.client.runs.create({ shell: 'echo so far; sleep 600' });
    for await (const event of stack.client.runs.events(run.id)) if (event.event === 'stdout') break;
    const { code, stdout, stderr } = await fuse(['runs', 'logs', run.id]);
    expect([code, stdout.toString(), stderr]).toEqual([0, 'so far\n', 'the run is still going on; -f follows it\n']);
    await stack.client.runs.cancel(run.id);
  });

  it('cancels a run, and refuses to cancel one that has ended', async () => {
    const run = await stack.client.runs.create({ shell: 'sleep 600' });
    const cancelled = await fuse(['runs', 'cancel', run.id]);
    expect([cancelled.code, cancelled.stderr]).toEqual([0, `${run.id}: cancelled\n`]);
    const ended = await stack.client.runs.create({ shell: 'true', wait: true });
    const refused = await fuse(['runs', 'cancel', ended.id]);
    expect([refused.code, refused.stderr]).toEqual([1, expect.stringContaining('conflict: ')]);
  });

  it('names a run that does not exist', async () => {
    const { code, stderr } = await fuse(['runs', 'get', 'run-none']);
    expect([code, stderr]).toEqual([1, 'not found: run run-none not found\n']);
  });
});

describe('fuse environment', { timeout: 120_000 }, () => {
  it('creates, lists, shows, executes, watches and destroys', async () => {
    const created = await fuse(['env', 'create', '--task-id', 'cli-story', '--env', 'WHO=me', '-o', 'json']);
    expect([created.code, JSON.parse(created.stdout.toString())]).toMatchObject([
      0,
      { id: 'fuse-cli-story', state: 'running' },
    ]);
    const watching = start(['environment', 'watch', 'fuse-cli-story']);
    await watching.says('running');
    expect(JSON.parse((await fuse(['envs', 'ls', '-o', 'json'])).stdout.toString()).environments).toHaveLength(1);
    expect((await fuse(['environment', 'get', 'fuse-cli-story'])).stdout.toString()).toMatch(/state +running/);

    const bytes =
      'import sys,os; sys.stdout.buffer.write(bytes(range(256))); sys.stderr.write(os.environ["WHO"]); sys.exit(9)';
    const exec = await fuse(['environment', 'exec', 'fuse-cli-story', '--', 'python3', '-c', bytes]);
    expect([exec.code, exec.stderr]).toEqual([9, 'me']);
    expect(exec.stdout).toEqual(Buffer.from(Uint8Array.from({ length: 256 }, (_, i) => i)));
    const late = await fuse(['env', 'exec', 'fuse-cli-story', '--timeout', '1s', '--shell', 'echo early; sleep 30']);
    expect([late.code, late.stdout.toString()]).toEqual([124, 'early\n']);
    const asJson = await fuse(['env', 'exec', 'fuse-cli-story', '-o', 'json', '--', 'echo', 'hi']);
    expect(JSON.parse(asJson.stdout.toString())).toMatchObject({ exit_code: 0, stdout: 'hi\n', stderr: '' });

    const unasked = await fuse(['env', 'destroy', 'fuse-cli-story']);
    expect([unasked.code, unasked.stderr]).toEqual([1, 'aborted (use --yes to skip confirmation)\n']);
    expect((await fuse(['env', 'destroy', 'fuse-cli-story', '--yes'])).code).toBe(0);
    const watched = await watching.outcome;
    expect([watched.code, watched.stdout.toString()]).toEqual([0, expect.stringContaining('destroyed')]);
    expect((await fuse(['env', 'get', 'fuse-cli-story'])).code).toBe(1);
  });
});

describe('fuse connect and context', { timeout: 60_000 }, () => {
  it('remembers an orchestrator, uses it, and forgets it', async () => {
    const bare = { XDG_CONFIG_HOME: at('config'), FUSE_HOME: at('none') };
    const other = (args: string[], more: Record<string, string> = {}) => runFuse(args, { env: { ...bare, ...more } });
    const nobody = await other(['runs', 'list']);
    expect([nobody.code, nobody.stderr]).toEqual([
      1,
      expect.stringContaining('no active context: run `fuse connect <url> --token <token>` first'),
    ]);
    const refused = await other(['connect', stack.url, '--token', 'wrong']);
    expect([refused.code, refused.stderr]).toEqual([1, expect.stringContaining('unauthorized')]);
    expect((await other(['connect', stack.url, '--name', 'here'], { FUSE_TOKEN: stack.token })).code).toBe(0);
    expect(JSON.parse((await other(['context', 'list', '-o', 'json'])).stdout.toString())).toEqual([
      { name: 'here', base_url: stack.url, master: false, current: true },
    ]);
    expect((await stat(at('config/fuse/config.yaml'))).mode & 0o777).toBe(0o600);
    const images = await other(['image', 'list', '-o', 'json']);
    expect(JSON.parse(images.stdout.toString()).images.map((image: { name: string }) => image.name)).toContain('base');
    expect((await other(['status'])).stdout.toString()).toMatch(/context +here\n/);
    expect((await other(['context', 'remove', 'here'])).code).toBe(0);
    expect((await other(['runs', 'list'])).code).toBe(1);
  });
});

describe('fuse --help', { timeout: 60_000 }, () => {
  it.each(['', 'run', 'runs', 'runs logs', 'env', 'env exec', 'image', 'local', 'local up', 'connect', 'context'])(
    'teaches "fuse %s"',
    async (command) => {
      const { code, stdout, stderr } = await fuse([...command.split(' ').filter((word) => word !== ''), '--help']);
      expect([code, stdout.toString(), stderr]).toEqual([0, expect.stringContaining('Usage: fuse'), '']);
    },
  );

  it('is pointed to by what cannot be understood', async () => {
    for (const args of [['rums'], ['run', '--cpu'], ['runs', 'list', '--state', 'nope'], ['local', 'up', '--bogus']]) {
      const { code, stdout, stderr } = await fuse(args);
      expect([code, stdout.toString(), stderr]).toEqual([1, '', expect.stringMatching(/\nhint: .*--help/)]);
    }
  });
});
