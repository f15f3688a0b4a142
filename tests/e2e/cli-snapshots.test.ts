/** `fuse snapshot`, `fuse environment fork|pause|resume`, as a user has them. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { clearAway } from './support/clear-away.ts';
import { fuse as runFuse, startFuse } from './support/fuse-cli.ts';
import { LocalStack } from './support/local-stack.ts';

let stack: LocalStack;
beforeAll(async () => {
  stack = await LocalStack.up({ FUSE_HOST_CPUS: '16', FUSE_HOST_RAM_MB: '2048' });
}, 180_000);
afterAll(() => stack?.[Symbol.asyncDispose](), 60_000);
afterEach(() => clearAway(stack), 120_000);

const env = () => ({ FUSE_URL: stack.url, FUSE_TOKEN: stack.token });
const fuse = async (...args: string[]) => {
  const { code, stdout, stderr } = await runFuse(args, { env: env() });
  return { code, stdout: stdout.toString(), stderr };
};
const fuseJson = async (...args: string[]) => {
  const { code, stdout, stderr } = await fuse(...args, '-o', 'json');
  expect([code, stderr], args.join(' ')).toEqual([0, expect.not.stringContaining('hint:')]);
  return JSON.parse(stdout);
};
const create = (task: string, ...more: string[]) =>
  fuseJson('env', 'create', '--task-id', task, '--ram-mb', '256', ...more);
const exec = async (id: string, line: string) => {
  const { code, stdout } = await fuse('env', 'exec', id, '--shell', line);
  return { code, stdout };
};

describe('fuse snapshot', { timeout: 240_000 }, () => {
  it('takes, lists, shows, restores and deletes', async () => {
    await create('snaps');
    await exec('fuse-snaps', 'echo before > /dev/shm/kept');
    const taken = await fuseJson(
      ...['snapshot', 'create', 'fuse-snaps', '--comment', 'the first', '--name', 'n1', '--mode', 'build'],
      ...['--retention', '7d', '--metadata', 'a=b=c', '--metadata', 'd=', '--export-ref', 'elsewhere'],
    );
    expect(taken).toMatchObject({
      vm_id: 'fuse-snaps',
      state: 'ready',
      comment: 'the first',
      name: 'n1',
      mode: 'build',
      export_ref: 'elsewhere',
      include_memory: true,
    });
    expect(Date.parse(taken.retention_until) - Date.parse(taken.created_at)).toBeGreaterThan(600_000_000);
    const text = await fuse('snap', 'get', taken.id);
    expect([text.code, text.stdout]).toEqual([0, expect.stringMatching(/^stood still +\d+(\.\d)? m?s$/m)]);
    const disk = await fuse('snaps', 'create', 'fuse-snaps', '--no-memory');
    expect([disk.code, disk.stdout]).toEqual([0, expect.stringMatching(/^holds +disk alone$/m)]);

    const table = await fuse('snapshots', 'ls', '--vm-id', 'fuse-snaps');
    expect(table.stdout).toMatch(/^ID +STATE +ENVIRONMENT +NAME +MODE +SIZE +STORED +AGE +COMMENT\n/);
    expect(table.stdout).toMatch(/ready +fuse-snaps +n1 +build +\d+\.\d [KMG]iB +\d.* +(now|\d+ s) +the first\n/);
    const byName = await fuseJson('snapshot', 'list', '--name', 'n1', '--state', 'ready', '--mode', 'build');
    expect(byName.snapshots.map((each: { id: string }) => each.id)).toEqual([taken.id]);
    const firstPage = await fuseJson('snapshot', 'list', '--limit', '1');
    expect([firstPage.snapshots.length, typeof firstPage.next_cursor]).toEqual([1, 'string']);
    expect((await fuseJson('snapshot', 'list', '--all-pages')).snapshots).toHaveLength(2);
    const none = await fuse('snapshot', 'list', '--vm-id', 'fuse-none');
    expect([none.code, none.stdout, none.stderr]).toEqual([0, '', 'no snapshots\n']);

    await exec('fuse-snaps', 'echo after > /dev/shm/kept');
    const unasked = await fuse('snapshot', 'restore', taken.id);
    expect([unasked.code, unasked.stderr]).toEqual([1, 'aborted (use --yes to skip confirmation)\n']);
    const watching = startFuse(['env', 'watch', 'fuse-snaps'], { env: env() });
    await watching.says('running');
    const restored = await fuse('snapshot', 'restore', taken.id, '--yes');
    expect([restored.code, restored.stderr]).toEqual([0, expect.stringContaining(`${taken.id} restored\n`)]);
    await watching.says(`restored from ${taken.id}`);
    watching.child.kill('SIGKILL');
    await watching.outcome;
    expect(await exec('fuse-snaps', 'cat /dev/shm/kept')).toEqual({ code: 0, stdout: 'before\n' });

    const again = await create('again', '--seed-snapshot', taken.id, '--fallback', 'disk');
    expect(again).toMatchObject({ id: 'fuse-again', seed_snapshot_id: taken.id });
    expect(await exec('fuse-again', 'cat /dev/shm/kept')).toEqual({ code: 0, stdout: 'before\n' });

    const asked = await fuse('snapshot', 'rm', taken.id);
    expect([asked.code, asked.stderr]).toEqual([1, 'aborted (use --yes to skip confirmation)\n']);
    const parent = await fuse('snapshot', 'rm', taken.id, '--yes');
    expect([parent.code, parent.stderr]).toEqual([1, expect.stringMatching(/^conflict: .*\nhint: .*--force/)]);
    const deleted = await fuse('snapshot', 'delete', taken.id, '--yes', '--force');
    expect([deleted.code, deleted.stdout]).toEqual([0, '']);
    expect(deleted.stderr).toMatch(/ deleted; freed \d.*B on its host/);
    const { id: diskId } = (await fuseJson('snapshot', 'list')).snapshots[0];
    expect(await fuseJson('snapshot', 'delete', diskId, '--yes')).toMatchObject({
      id: diskId,
      freed_host_bytes: expect.any(Number),
      freed_store_bytes: 0,
    });
    const missing = await fuse('snapshot', 'get', taken.id);
    expect([missing.code, missing.stderr]).toEqual([1, expect.stringMatching(/^not found: /)]);
  });

  it('stopped by Ctrl-C says what may have become of it, and exits with 130', async () => {
    await create('stopped');
    const taking = startFuse(['snapshot', 'create', 'fuse-stopped'], { env: env() });
    while ((await stack.client.snapshots.list()).length === 0 && taking.child.exitCode === null);
    taking.child.kill('SIGINT');
    const { code, stderr } = await taking.outcome;
    if (code === 0) return; // it was faster
    expect([code, stderr]).toEqual([130, expect.stringContaining('fuse snapshot list --vm-id fuse-stopped')]);
    await expect
      .poll(async () => (await stack.client.snapshots.list()).filter(({ state }) => state === 'creating'), {
        timeout: 60_000,
      })
      .toEqual([]);
  });
});

describe('fuse environment', { timeout: 240_000 }, () => {
  it('forks one and many', async () => {
    await create('forked');
    await exec('fuse-forked', 'echo kept > /dev/shm/kept');
    const one = await fuseJson('environment', 'fork', 'fuse-forked', '--comment', 'why');
    expect(one).toMatchObject({ state: 'running', seed_snapshot_id: expect.any(String) });
    expect(await exec(one.id, 'cat /dev/shm/kept')).toEqual({ code: 0, stdout: 'kept\n' });
    const reuse = ['--reuse-snapshot', one.seed_snapshot_id];
    const many = await fuseJson('env', 'fork', 'fuse-forked', '--count', '2', ...reuse);
    expect(many).toMatchObject({ snapshot_id: one.seed_snapshot_id });
    expect(many.environments).toHaveLength(2);
    const text = await fuse('env', 'fork', 'fuse-forked', '--count', '2', ...reuse);
    expect([text.code, text.stdout]).toEqual([
      0,
      expect.stringMatching(/^ID +STATE .*\n.+ running .*\n.+ running .*\n$/),
    ]);
    const refused = await fuse('env', 'fork', 'fuse-forked', '--count', '50', ...reuse);
    expect([refused.code, refused.stderr]).toEqual([1, expect.stringMatching(/^unavailable: /)]);
  });

  it('pauses and resumes', async () => {
    await create('rests', '--auto-resume', '--idle-timeout', '10m', '--idle-action', 'pause');
    await exec('fuse-rests', 'echo kept > /dev/shm/kept');
    const paused = await fuse('environment', 'pause', 'fuse-rests');
    expect([paused.code, paused.stdout, paused.stderr]).toEqual([
      0,
      '',
      expect.stringContaining('fuse-rests paused\n'),
    ]);
    expect((await fuse('env', 'list', '--state', 'paused')).stdout).toMatch(/\nfuse-rests +paused /);
    const text = await fuse('env', 'get', 'fuse-rests');
    expect(text.stdout).toMatch(/^when idle +pause after 10 min 0 s$/m);
    expect(text.stdout).toMatch(/^paused +20/m);
    expect(await fuseJson('env', 'resume', 'fuse-rests')).toMatchObject({ state: 'running' });
    expect(await exec('fuse-rests', 'cat /dev/shm/kept')).toEqual({ code: 0, stdout: 'kept\n' });
    await fuse('env', 'pause', 'fuse-rests');
    expect(await exec('fuse-rests', 'cat /dev/shm/kept')).toEqual({ code: 0, stdout: 'kept\n' });
  });

  it('takes checkpoints by itself', async () => {
    const made = await create('checked', '--checkpoint-interval', '10s', '--checkpoint-keep', '1');
    expect(made).toMatchObject({ checkpoint_interval_seconds: 10, checkpoint_keep: 1 });
    expect((await fuse('env', 'get', 'fuse-checked')).stdout).toMatch(/^checkpoints +every 10\.0 s, the last 1 kept$/m);
    await expect
      .poll(async () => (await fuseJson('snapshot', 'list', '--vm-id', 'fuse-checked')).snapshots.length, {
        timeout: 90_000,
        interval: 500,
      })
      .toBeGreaterThan(0);
  });
});
