/** What a person does inside of an environment with the command line: commands, files, ports; on a real VM. */
import { chmod, lstat, mkdir, mkdtemp, readdir, readFile, readlink, rm, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { freePort } from '@fuse/testing';
import { pack } from 'tar-stream';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { fuse as run, startFuse } from './support/fuse-cli.ts';
import { LocalStack } from './support/local-stack.ts';

const id = 'fuse-inside';
/** Only what hangs takes that long. */
const slow = { timeout: 60_000 };
let stack: LocalStack;
let here: string;

beforeAll(async () => {
  stack = await LocalStack.up();
  await stack.client.environments.create({ task_id: 'inside', spec: { ram_mb: 512 } });
});
beforeEach(async () => {
  here = await mkdtemp(join(tmpdir(), 'fuse-inside-'));
});
afterEach(async () => {
  await rm(here, { recursive: true, force: true });
});
afterAll(async () => {
  await stack?.[Symbol.asyncDispose]();
});

const options = (
  more: { stdin?: Uint8Array | string; keepStdinOpen?: boolean; env?: Record<string, string> } = {},
) => ({
  ...more,
  cwd: here,
  env: { FUSE_HOME: stack.home, FUSE_URL: stack.url, FUSE_TOKEN: stack.token, ...more.env },
});
const fuse = (args: string[], more = {}) => run(args, options(more));
const start = (args: string[], more = {}) => startFuse(args, options(more));
const environment = (command: string, args: string[], more = {}) => fuse(['environment', command, ...args], more);

async function inGuest(shell: string): Promise<string> {
  const { exit_code, stdout, stderr } = await stack.client.environments.exec(id, { shell });
  if (exit_code !== 0) throw new Error(`${shell}: ${stderr}`);
  return stdout;
}

/** No process with this in its command line is left. */
async function isGone(pattern: string): Promise<void> {
  await expect
    .poll(async () => (await stack.client.environments.exec(id, { cmd: ['pgrep', '-f', pattern] })).exit_code, slow)
    .toBe(1);
}

describe('commands', () => {
  test('streams are apart and byte for byte, and the exit code is the command’s', async () => {
    const shell = `printf '\\000\\377\\303'; printf '\\251' >&2; exit 7`;
    const { code, stdout, stderr } = await environment('exec', ['--shell', shell, id]);
    expect([code, stdout, stderr]).toEqual([7, Buffer.from([0, 255, 0xc3]), '\ufffd']);
    const late = await environment('exec', ['--timeout', '500ms', id, '--', 'sleep', '60']);
    expect(late).toMatchObject({ code: 124, stderr: expect.stringMatching(/^timed out after/) });
    const unknown = await environment('exec', [id, '--', 'no-such-program']);
    expect(unknown).toMatchObject({ code: 1, stderr: expect.stringContaining('no such program') });
  });

  test('standard input is touched only with -i, and then whole, to its end', async () => {
    const bytes = Buffer.alloc(300_000, '0123456789abcdef\n');
    const counted = await environment('exec', ['-i', id, '--', 'wc', '-c'], { stdin: bytes });
    expect(counted.stdout.toString().trim()).toBe('300000');
    const alone = await environment('exec', [id, '--', 'cat'], { keepStdinOpen: true });
    expect(alone).toMatchObject({ code: 0, stdout: Buffer.alloc(0) });
  });

  test('Ctrl-C ends it with all that it started; so does a reader that leaves', async () => {
    const shell = 'setsid sleep 7001 & echo begun; sleep 7002';
    const interrupted = start(['environment', 'exec', '--shell', shell, id]);
    await interrupted.says('begun');
    interrupted.child.kill('SIGINT');
    expect(await interrupted.outcome).toMatchObject({ code: 130, stderr: '' });
    await isGone('^sleep 700[12]$');
    const unread = start(['environment', 'exec', '--shell', 'echo begun; exec yes 7003', id]);
    await unread.says('begun');
    unread.child.stdout?.destroy();
    expect(await unread.outcome).toMatchObject({ code: 141, stderr: '' });
    await isGone('^yes 7003$');
  });

  test('in the background it has an id, for its log, its end, signals and a kill', async () => {
    const shell = 'echo first; trap "echo last; exit 5" TERM; while :; do sleep 0.1; done';
    const begun = await environment('exec', ['--background', '--id', 'loop', '--shell', shell, id]);
    expect(begun).toMatchObject({ code: 0, stdout: Buffer.from('loop\n') });
    const log = start(['environment', 'logs', '--follow', id, 'loop']);
    await log.says('first');
    const waiting = await environment('wait', ['--timeout', '100ms', id, 'loop']);
    expect(waiting).toMatchObject({ code: 124, stderr: expect.stringContaining('loop still runs') });
    expect((await environment('ps', [id])).stdout.toString()).toMatch(/ loop +sh -lc/);
    expect((await environment('execs', [id])).stdout.toString()).toMatch(/^loop +running /m);
    expect(await environment('signal', [id, 'loop', 'term'])).toMatchObject({ code: 0 });
    expect(await log.outcome).toMatchObject({ code: 0, stdout: Buffer.from('first\nlast\n') });
    expect(await environment('wait', [id, 'loop'])).toMatchObject({ code: 5, stderr: '' });

    await environment('exec', ['--background', '--id', 'long', id, '--', 'sleep', '7004']);
    expect(await environment('kill', [id, 'long'])).toMatchObject({ code: 0 });
    expect(await environment('wait', [id, 'long'])).toMatchObject({ code: 137 });
    expect(await environment('logs', [id, 'nothing'])).toMatchObject({
      code: 1,
      stderr: 'not found: exec nothing of vm fuse-inside not found\n',
    });
  });

  test('one whose VM is lost under it is named, and what it wrote can still be read', async () => {
    const lost = 'fuse-lost';
    await stack.client.environments.create({ task_id: 'lost', spec: { ram_mb: 512 } });
    const started = start(['environment', 'exec', '--id', 'doomed', '--shell', 'echo begun; sleep 7005', lost]);
    await started.says('begun');
    await stack.client.environments.destroy(lost);
    const { code, stderr } = await started.outcome;
    expect(code).toBe(1);
    expect(stderr).toMatch(
      /^exec doomed is lost, its end is unknown: .+\nhint: what it wrote: fuse environment logs fuse-lost doomed\n$/,
    );
    expect((await environment('logs', [lost, 'doomed'])).stdout.toString()).toBe('begun\n');
    const waited = await environment('wait', [lost, 'doomed']);
    expect(waited).toMatchObject({ code: 1, stderr: expect.stringContaining('how doomed ended is not known') });
  });

  test('a terminal is not asked of what has none', async () => {
    const { code, stderr } = await environment('shell', [id]);
    expect(code).toBe(1);
    expect(stderr).toBe(`shell needs a terminal\nhint: fuse environment exec -i ${id} -- COMMAND needs none\n`);
  });
});

describe('files', () => {
  test('cp goes by the rules of docker cp, with modes and links', async () => {
    await mkdir(join(here, 'src/sub'), { recursive: true });
    await writeFile(join(here, 'src/run.sh'), '#!/bin/sh\n');
    await chmod(join(here, 'src/run.sh'), 0o750);
    await writeFile(join(here, 'src/sub/-odd name'), 'deep');
    await symlink('run.sh', join(here, 'src/inside'));
    await symlink('/etc/passwd', join(here, 'src/outside'));
    expect(await fuse(['cp', 'src', `${id}:/srv/new`])).toMatchObject({ code: 0, stderr: '' });
    await fuse(['cp', 'src/.', `${id}:/srv/new`]);
    await fuse(['cp', 'src', `${id}:/srv/new`]);
    const listed = await environment('ls', ['-R', `${id}:/srv/new`]);
    const below = ['inside', 'outside', 'run.sh', 'sub', 'sub/-odd name'];
    const expected = [...below, 'src', ...below.map((name) => `src/${name}`)].sort();
    expect(listed.stdout.toString()).toBe(expected.map((name) => `/srv/new/${name}\n`).join(''));
    expect((await environment('ls', ['-l', `${id}:/srv/new/run.sh`])).stdout.toString()).toMatch(
      /^-rwxr-x--- root root +10 /,
    );

    expect((await fuse(['cp', `${id}:/srv/new/.`, `${id}:/srv/new/sub/-odd name`, 'back'])).stderr).toMatch(
      /^back is not a directory\n/,
    );
    const back = await fuse(['cp', `${id}:/srv/new/src`, 'back']);
    expect(back).toMatchObject({ code: 0, stderr: 'left out: outside (link leads out)\n' });
    expect((await readdir(join(here, 'back'))).sort()).toEqual(['inside', 'run.sh', 'sub']);
    expect((await lstat(join(here, 'back/run.sh'))).mode & 0o777).toBe(0o750);
    expect(await readlink(join(here, 'back/inside'))).toBe('run.sh');
    expect(await readFile(join(here, 'back/sub/-odd name'), 'utf8')).toBe('deep');
  });

  test('- is a stream: of a file, or with --tar of a directory; and environments copy to each other', async () => {
    const bytes = Buffer.from(Array.from({ length: 100_000 }, (_, at) => at % 256));
    await fuse(['cp', '-', `${id}:bytes`], { stdin: bytes });
    expect((await fuse(['cp', `${id}:bytes`, '-'])).stdout.equals(bytes)).toBe(true);
    expect((await environment('cat', [`${id}:bytes`])).stdout.equals(bytes)).toBe(true);
    await inGuest('mkdir -p /srv/a && cp bytes /srv/a');
    const { stdout: tar } = await fuse(['cp', '--tar', `${id}:/srv/a`, '-']);
    expect(await fuse(['cp', '--tar', '-', `${id}:/srv/b`], { stdin: tar })).toMatchObject({ code: 0, stderr: '' });
    await fuse(['cp', `${id}:/srv/b`, `${id}:/srv/c`]);
    await inGuest('cmp bytes /srv/b/bytes && cmp bytes /srv/c/bytes');
    expect((await fuse(['cp', `${id}:/srv/a`, '-'])).stderr).toContain('hint: Give --tar');
  });

  test('an interrupted copy leaves nothing under its name, nor beside it', async () => {
    await inGuest('truncate -s 2G /srv/huge');
    await mkdir(join(here, 'into'));
    const out = start(['cp', `${id}:/srv/huge`, 'into/huge']);
    await expect.poll(() => readdir(join(here, 'into')), slow).not.toEqual([]);
    out.child.kill('SIGINT');
    expect(await out.outcome).toMatchObject({ code: 130, stderr: '' });
    expect(await readdir(join(here, 'into'))).toEqual([]);
    const into = start(['cp', '-', `${id}:/srv/into/half`], { stdin: 'begun', keepStdinOpen: true });
    await expect.poll(() => inGuest('ls -A /srv/into 2>/dev/null; true'), slow).not.toBe('');
    into.child.kill('SIGINT');
    expect(await into.outcome).toMatchObject({ code: 130, stderr: '' });
    await expect.poll(() => inGuest('ls -A /srv/into'), slow).toBe('');
  });

  test('what a guest plants stays below the directory, harmless', async () => {
    await inGuest(`mkdir -p /srv/evil/dir && cd /srv/evil && ln -s ${here}/outside up && ln -s / root && ln -s dir/../../x climb
      ln -s dir ok; mknod null c 1 3; mkfifo pipe; echo s > setuid; chmod 6755 setuid; ln setuid hard; echo x > "$(printf 'a\\033[2Jb')"; chmod 1777 dir`);
    await mkdir(join(here, 'outside'));
    await mkdir(join(here, 'got'));
    await symlink('../outside', join(here, 'got/dir')); // somebody's, in the way of a directory
    const { code, stderr } = await fuse(['cp', `${id}:/srv/evil/.`, 'got']);
    expect(code).toBe(0);
    for (const name of ['up', 'root', 'climb']) expect(stderr).toContain(`left out: ${name} (link leads out)\n`);
    for (const name of ['null', 'pipe']) expect(stderr).toContain(`left out: ${name} (special file)\n`);
    expect((await readdir(join(here, 'got'))).sort()).toEqual(['a\x1b[2Jb', 'dir', 'hard', 'ok', 'setuid']);
    expect((await lstat(join(here, 'got/setuid'))).mode & 0o7777).toBe(0o755);
    expect((await lstat(join(here, 'got/dir'))).isDirectory()).toBe(true);
    expect(await readdir(join(here, 'outside'))).toEqual([]);
    expect((await environment('ls', [`${id}:/srv/evil`])).stdout.toString()).toContain('a\\u{1b}[2Jb\n');
  });

  test('a tar that would leave its directory is refused, in words', async () => {
    const archive = pack();
    archive.entry({ name: '../\x1b[31mescaped' }, 'x');
    archive.finalize();
    const { code, stderr } = await fuse(['cp', '--tar', '-', `${id}:/srv/tarred`], {
      stdin: await bytesOf(Readable.from(archive)),
    });
    expect(code).toBe(1);
    expect(stderr).toMatch(/^invalid argument: .*\.\./);
    expect(stderr).not.toContain('\x1b');
    expect(await inGuest('ls -A /srv/tarred 2>/dev/null; ls /srv | grep -c escaped; true')).toBe('0\n');
  });

  test('edit: exact text, a patch, an editor; what does not match is said', async () => {
    await fuse(['cp', '-', `${id}:e.txt`], { stdin: 'one\ntwo\ntwo\n' });
    const edit = (...args: string[]) => environment('edit', [`${id}:e.txt`, ...args]);
    expect(await edit('--old', 'one', '--new', 'ONE')).toMatchObject({ code: 0 });
    expect((await edit('--old', 'two', '--new', 'x')).stderr).toMatch(/2 times, in lines 2, 3.*\nhint: .*--all\n$/);
    expect((await edit('--old', 'gone', '--new', 'x')).stderr).toMatch(
      /^conflict: .*is not in "\/workspace\/e.txt"\nhint: /,
    );
    const patch = '--- a/e.txt\n+++ b/e.txt\n@@ -1,2 +1,2 @@\n-ONE\n+uno\n two\n';
    const apply = () => environment('edit', [`${id}:`, '--patch', '-'], { stdin: patch });
    expect(await apply()).toMatchObject({ code: 0, stderr: 'modified /workspace/e.txt\n' });
    expect(await apply()).toMatchObject({ code: 1, stderr: expect.stringMatching(/^conflict: hunk 1 does not apply/) });
    const byHand = (editor: string) => environment('edit', [`${id}:e.txt`], { env: { EDITOR: editor } });
    expect(await byHand('sed -i s/uno/eins/')).toMatchObject({ code: 0, stderr: '/workspace/e.txt written\n' });
    expect(await byHand('true')).toMatchObject({ code: 0, stderr: 'nothing changed\n' });
    expect(await byHand('false')).toMatchObject({ code: 1, stderr: 'false ended with 1: nothing is written\n' });
    expect(await inGuest('cat e.txt')).toBe('eins\ntwo\ntwo\n');
  });

  test('edit by hand does not write over what somebody else wrote meanwhile, and keeps both', async () => {
    await fuse(['cp', '-', `${id}:shared.txt`], { stdin: 'first\n' });
    const editor = join(here, 'editor');
    const program = new URL('../../apps/cli/bin/fuse.js', import.meta.url).pathname;
    const theirs = `"${process.execPath}" "${program}" cp - ${id}:shared.txt`;
    await writeFile(editor, `#!/bin/sh\necho mine >> "$1"\necho theirs | ${theirs}\n`, { mode: 0o755 });
    const { code, stderr } = await environment('edit', [`${id}:shared.txt`], { env: { EDITOR: editor } });
    expect(code).toBe(1);
    const [, kept = ''] = /was changed by somebody else meanwhile\nhint: yours is kept in (\S+):/.exec(stderr) ?? [];
    expect(await readFile(kept, 'utf8')).toBe('first\nmine\n');
    await rm(join(kept, '..'), { recursive: true });
    expect(await inGuest('cat shared.txt')).toBe('theirs\n');
  });

  test('diff exits as diff does', async () => {
    await fuse(['cp', '-', `${id}:d.txt`], { stdin: 'same\nthere\n' });
    await writeFile(join(here, 'd.txt'), 'same\nhere\n');
    const { code, stdout } = await environment('diff', [`${id}:d.txt`, 'd.txt']);
    expect(code).toBe(1);
    expect(stdout.toString()).toBe(`--- ${id}:d.txt\n+++ d.txt\n@@ -1,2 +1,2 @@\n same\n-there\n+here\n`);
    expect(await environment('diff', [`${id}:d.txt`, `${id}:/workspace/d.txt`])).toMatchObject({ code: 0 });
    const missing = await environment('diff', [`${id}:none`, 'd.txt']);
    expect(missing).toMatchObject({ code: 2, stderr: expect.stringContaining('no file "/workspace/none"') });
    expect(await environment('diff', ['d.txt'])).toMatchObject({ code: 2 });
  });

  test('what is not there, or is something else, is one sentence and a hint', async () => {
    const told = async (...args: string[]) => (await fuse(args)).stderr;
    const look = 'hint: `fuse environment ls` shows what is in a directory\n';
    expect(await told('environment', 'cat', `${id}:none`)).toBe(`not found: no file "/workspace/none"\n${look}`);
    expect(await told('environment', 'ls', 'nobody:x')).toBe('not found: vm nobody not found\n');
    expect(await told('environment', 'cat', `${id}:/etc`)).toMatch(
      /is not a regular file\nhint: .*`fuse cp` copies directories\n$/,
    );
    expect(await told('cp', 'none', `${id}:`)).toBe('none: no such file or directory\n');
    expect(await told('cp', `${id}:/etc/hostname`, 'no/where')).toMatch(/no: no such file or directory\n$/);
    expect(await told('cp', `${id}:/etc/hostname`, '/dev/null')).toMatch(
      /^\/dev\/null is neither a file nor a directory\n/,
    );
  });
});

describe('port-forward', () => {
  test('several ports at once, until Ctrl-C; a port without a server is told and harms no other', async () => {
    const serve = 'cd /srv && exec python3 -m http.server --bind 127.0.0.1 8000';
    await inGuest('mkdir -p /srv && echo served > /srv/page');
    await environment('exec', ['--background', '--id', 'web', '--shell', serve, id]);
    const port = await freePort();
    const forward = start(['port-forward', id, `${port}:8000`, '0:9']);
    await forward.says(`-> ${id}:9\n`);
    const page = async () => (await fetch(`http://127.0.0.1:${port}/page`)).text();
    await expect.poll(() => page().catch(() => 'not yet'), slow).toBe('served\n');
    const [, deadPort] = /127\.0\.0\.1:(\d+) -> \S+:9\n/.exec(forward.said()) ?? [];
    await expect(fetch(`http://127.0.0.1:${deadPort}/`)).rejects.toThrow();
    await forward.says('9: unavailable: nothing listens on port 9');
    expect(await page()).toBe('served\n');
    const again = await fuse(['port-forward', id, `${port}:8000`]);
    expect(again).toMatchObject({
      code: 1,
      stderr: `cannot listen on 127.0.0.1:${port}: address already in use\nhint: any free port: fuse port-forward ${id} 0:8000\n`,
    });
    forward.child.kill('SIGINT');
    expect(await forward.outcome).toMatchObject({ code: 130 });
    const free = createServer();
    await new Promise<void>((resolve, reject) => free.once('error', reject).listen(port, '127.0.0.1', resolve));
    await new Promise((resolve) => free.close(resolve));
  });

  test('an environment that is not there is told before anything listens', async () => {
    expect(await fuse(['port-forward', 'nobody', '0:80'])).toMatchObject({
      code: 1,
      stderr: 'not found: vm nobody not found\n',
    });
  });
});

async function bytesOf(stream: Readable): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}
