import { createHash, randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { streamsOf, TestHost } from '../vms/test-host.ts';

let host: TestHost;
let vm: string;
beforeAll(async () => {
  host = await TestHost.open();
  vm = (await host.create()).id;
});
afterAll(() => host[Symbol.asyncDispose]());

const sum = (bytes: Uint8Array | string) => createHash('sha256').update(bytes).digest('hex');
const inside = async (script: string) => {
  const { exec, stderr } = await host.shell(vm, `rm -rf /workspace/* /workspace/.[!.]*; cd /workspace; ${script}`);
  expect(exec.exit?.exit_code, stderr.toString()).toBe(0);
};

describe('outputs', () => {
  it('are saved byte for byte under keys that the guest has no say in', async () => {
    const large = randomBytes(6_000_000);
    const key = await host.putObject('large', large);
    await inside(
      'mkdir -p out/deep; echo one > out/one.txt; echo two > out/deep/two.json; : > out/empty; echo no > other',
    );
    await host.call('PUT', `/v1/vms/${vm}/files`, { files: [{ path: '/workspace/out/large', object_key: key }] });
    const { outputs, skipped } = await host.collect(vm, { globs: ['out/**'], key_prefix: 'runs/r1/outputs' });
    expect(skipped).toEqual([]);
    expect(outputs.map(({ path }) => path).sort()).toEqual([
      'out/deep/two.json',
      'out/empty',
      'out/large',
      'out/one.txt',
    ]);
    expect(outputs.every(({ object_key }) => /^runs\/r1\/outputs\/\d+$/.test(object_key))).toBe(true);
    for (const { object_key, sha256, size_bytes } of outputs) {
      const bytes = await host.object(object_key);
      expect([bytes.length, sum(bytes)]).toEqual([size_bytes, sha256]);
    }
    expect(outputs.find(({ path }) => path === 'out/large')?.sha256).toBe(sum(large));
  });

  it('write the same keys when they are collected again', async () => {
    await inside('echo first > a');
    const first = await host.collect(vm, { globs: ['a'], key_prefix: 'again' });
    await inside('echo second > a');
    const second = await host.collect(vm, { globs: ['a'], key_prefix: 'again' });
    expect(second.outputs[0]?.object_key).toBe(first.outputs[0]?.object_key);
    expect((await host.object('again/0')).toString()).toBe('second\n');
  });

  it('never lead out of the workspace or to what is no file', async () => {
    await inside(
      'mkdir real; echo x > real/x; ln -s /etc/passwd link; ln -s real linked; ln -s ../../etc dirlink; mkfifo pipe; mknod device c 1 5; mkdir directory; ln real/x hard',
    );
    const { outputs, skipped } = await host.collect(vm, {
      globs: ['**', 'link', 'linked/x', 'dirlink/passwd', 'directory'],
    });
    expect(outputs.map(({ path }) => path).sort()).toEqual(['hard', 'real/x']);
    const reasons = Object.fromEntries(skipped.map(({ path, reason }) => [path, reason]));
    expect(reasons).toMatchObject({ link: 'symlink', pipe: 'not_a_regular_file', device: 'not_a_regular_file' });
    await expect(host.collect(vm, { globs: ['../etc/passwd'] })).rejects.toMatchObject({ status: 400 });
  });

  it('keep odd names as they are', async () => {
    const names = ['-rf', 'a b', `it's "q"`, '$(reboot)', 'line\nbreak', '😀', '\u00e9', 'e\u0301', 'x'.repeat(255)];
    const quoted = names.map((name) => `'${name.replaceAll("'", "'\\''")}'`).join(' ');
    await inside(`for f in ${quoted}; do printf %s "$f" > "./$f"; done; printf x > "$(printf 'bad\\377')"`);
    const { outputs, skipped } = await host.collect(vm, { globs: ['*'] });
    expect(outputs.map(({ path }) => path).sort()).toEqual([...names].sort());
    for (const { path, object_key } of outputs) expect((await host.object(object_key)).toString()).toBe(path);
    expect(skipped).toMatchObject([{ reason: 'bad_name' }]);
  });

  it('say why what is over a limit was not saved', async () => {
    await inside(
      'head -c 2000 /dev/zero > a; head -c 900 /dev/zero > b; head -c 900 /dev/zero > c; echo > d; echo > e',
    );
    const limits = { max_files: 3, max_file_bytes: 1_000, max_total_bytes: 1_500 };
    const { outputs, skipped } = await host.collect(vm, { globs: ['a', 'b', 'c'], ...limits });
    expect(outputs.map(({ path }) => path)).toEqual(['b']);
    expect(skipped).toEqual([
      { path: 'a', reason: 'too_large' },
      { path: 'c', reason: 'total_too_large' },
    ]);
    const many = await host.collect(vm, { globs: ['*'], max_files: 3 });
    expect(many.outputs.length).toBe(3);
    expect(many.skipped.some(({ reason }) => reason === 'too_many')).toBe(true);
  });

  it.each([
    ['grows', 'while :; do echo more >> changing; done'],
    ['shrinks and grows', 'while :; do truncate -s 30000000 changing; truncate -s 10 changing; done'],
  ])('leave out a file that %s while it is read', async (_how, script) => {
    await inside('head -c 30000000 /dev/zero > changing; echo fine > fine');
    const { id } = await host.startExec(vm, ['sh', '-c', `cd /workspace; ${script}`]);
    const { outputs, skipped } = await host.collect(vm, { globs: ['*'] });
    await host.call('DELETE', `/v1/vms/${vm}/execs/${id}`);
    expect(outputs.map(({ path }) => path)).toContain('fine');
    const changing = outputs.find(({ path }) => path === 'changing');
    if (changing === undefined) expect(skipped).toEqual([{ path: 'changing', reason: 'changed_while_read' }]);
    else expect((await host.object(changing.object_key)).length).toBe(changing.size_bytes); // read in a moment of rest
  });

  it('include the logs of an exec, and the frames that they came in', async () => {
    const { id } = await host.startExec(vm, ['sh', '-c', 'echo out; echo err >&2; echo out again']);
    await host.endOf(vm, id);
    const { outputs, frames_object_key } = await host.collect(vm, { exec_id: id, key_prefix: 'logs' });
    expect(outputs.map(({ path, kind }) => [path, kind])).toEqual([
      ['.fuse/stdout.log', 'log'],
      ['.fuse/stderr.log', 'log'],
    ]);
    const [stdout, stderr] = await Promise.all(outputs.map(({ object_key }) => host.object(object_key)));
    expect([stdout?.toString(), stderr?.toString()]).toEqual(['out\nout again\n', 'err\n']);
    expect(frames_object_key).toBe('logs/frames');
    expect(streamsOf(await host.object('logs/frames'))).toMatchObject({ exited: true });

    const quiet = await host.startExec(vm, ['true']);
    await host.endOf(vm, quiet.id);
    const { outputs: none } = await host.collect(vm, { exec_id: quiet.id });
    expect(none).toEqual([]);
  });
});
