/** Files, a startup script, a healthcheck and exposed ports of a create, waited for or not, on real VMs. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { CreateEnvironment, EnvironmentEvent } from '@fuse/sdk';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { clearAway } from './support/clear-away.ts';
import { LocalStack } from './support/local-stack.ts';

let stack: LocalStack;
let directory: string;
beforeAll(async () => {
  stack = await LocalStack.up({ ORCH_TAKEOVER_SECONDS: '3' });
  directory = await mkdtemp(join(tmpdir(), 'fuse-startup-'));
}, 180_000);
afterAll(async () => {
  await stack?.[Symbol.asyncDispose]();
  if (directory !== undefined) await rm(directory, { recursive: true });
}, 60_000);
afterEach(() => clearAway(stack), 120_000);

const base64 = (text: string) => Buffer.from(text).toString('base64');
const create = (task_id: string, more: Omit<CreateEnvironment, 'task_id'>) =>
  stack.client.environments.create({ task_id, spec: { cpus: 1, ram_mb: 256, storage_gb: 1 }, ...more });
const run = async (id: string, shell: string) => (await stack.client.environments.exec(id, { shell })).stdout;
const healthOf = async (id: string) => (await stack.client.environments.get(id)).health?.state;
const untilHealth = (id: string, state: string) =>
  expect.poll(() => healthOf(id), { timeout: 90_000, interval: 250 }).toBe(state);

/** To the first that is `last`, or to the end of the environment. */
async function eventsTo(id: string, last: (event: EnvironmentEvent) => boolean): Promise<EnvironmentEvent[]> {
  const seen: EnvironmentEvent[] = [];
  for await (const event of await stack.client.environments.events(id)) {
    seen.push(event);
    if (last(event)) break;
  }
  return seen;
}

// As people write it: a server in the background, noisy, that outlives the script.
const SERVE = 'mkdir site && cp page.html site/ && cd site && python3 -m http.server 8000 & echo "serves $WHO"';

describe('a create with a startup', { timeout: 300_000 }, () => {
  it('has its files and variables, leaves a server running, and is watched', async () => {
    const made = await create('web', {
      env: { WHO: 'everybody' },
      files: { '/workspace/page.html': base64('<p>hello'), '/opt/a/b/c.bin': 'AP8K' },
      startup_script: SERVE,
      expose: [{ port: 8_000, as: 'web' }],
      healthcheck: { http: { port: 8_000, path: '/page.html' }, interval_seconds: 3, timeout_seconds: 3, retries: 2 },
    });
    expect(made.state).toBe('running');
    expect(made.endpoints).toEqual([
      { as: 'web', port: 8_000, url: `127.0.0.1:${stack.port}/v1/environments/fuse-web/ports/8000/connect` },
    ]);
    expect(await run(made.id, 'od -An -tx1 /opt/a/b/c.bin')).toBe(' 00 ff 0a\n');
    expect(await stack.client.environments.execs.result(made.id, 'startup')).toMatchObject({
      exit_code: 0,
      stdout: 'serves everybody\n',
    });
    await untilHealth(made.id, 'passing');
    expect(
      await run(
        made.id,
        'python3 -c "import urllib.request as r; print(r.urlopen(\'http://127.0.0.1:8000/page.html\').read())"',
      ),
    ).toBe("b'<p>hello'\n");
    const fork = await stack.client.environments.fork(made.id);
    expect(fork.endpoints).toHaveLength(1);
    await untilHealth(fork.id, 'passing');
    await stack.client.environments.destroy(fork.id);

    const told = eventsTo(made.id, ({ health }) => health?.state === 'failing');
    await run(made.id, "pkill -f '[h]ttp.server'");
    await untilHealth(made.id, 'failing');
    const events = await told;
    expect(events.every(({ state }) => state === 'running')).toBe(true);
    expect(events.map(({ health }) => health?.state)).toEqual(expect.arrayContaining(['passing', 'failing']));
    // It reports and ends nothing.
    expect(await run(made.id, 'echo alive')).toBe('alive\n');
  });

  it('is watched by a command, across pause, resume and a crash of the service', async () => {
    const made = await create('checked', {
      healthcheck: { exec: ['test', '-e', '/workspace/well'], interval_seconds: 1, retries: 1 },
    });
    await untilHealth(made.id, 'failing');
    await run(made.id, 'touch well');
    await untilHealth(made.id, 'passing');
    await stack.client.environments.pause(made.id);
    await stack.client.environments.resume(made.id);
    await stack.end('SIGKILL');
    await stack.start();
    expect(await healthOf(made.id)).toBe('passing');
    await run(made.id, 'rm well');
    await untilHealth(made.id, 'failing');
  });

  it('is done anew in what goes on from a snapshot', async () => {
    const script = (word: string) => ({ startup_script: `echo ${word} | tee -a /workspace/words` });
    const source = await create('source', script('first'));
    const snapshot = await stack.client.snapshots.create(source.id);
    await stack.client.environments.destroy(source.id);
    const seeded = await stack.client.environments.create({
      task_id: 'seeded',
      seed_snapshot_id: snapshot.id,
      files: { '/workspace/more': base64('more') },
      ...script('second'),
    });
    expect(await run(seeded.id, 'cat words more')).toBe('first\nsecond\nmore');
    expect(await stack.client.environments.execs.result(seeded.id, 'startup')).toMatchObject({ stdout: 'second\n' });
    expect(await stack.client.environments.execs.result(source.id, 'startup')).toMatchObject({ stdout: 'first\n' });
  });

  it('fails with its script, whose output can be read afterwards', async () => {
    const script = 'seq 1 20000; echo "no such thing" >&2; exit 9';
    const failure = await create('broken', { startup_script: script }).catch((error: unknown) => error);
    expect(failure).toMatchObject({
      status: 400,
      code: 'invalid_argument',
      message: expect.stringContaining('startup script: exec exit 9'),
      details: { exec_id: 'startup', exit_code: '9', output: expect.stringContaining('no such thing\n') },
    });
    const result = await stack.client.environments.execs.result('fuse-broken', 'startup');
    expect(result).toMatchObject({ exit_code: 9, stderr: 'no such thing\n' });
    expect(result.stdout.endsWith('19999\n20000\n')).toBe(true);
    const shown = await stack.fuse(['environment', 'logs', 'fuse-broken', 'startup']);
    expect([shown.code, shown.stdout.endsWith('20000\n')]).toEqual([0, true]);
    expect(await stack.vmmPids()).toEqual([]);
  });

  it('fails when its script takes too long, with what it wrote until then', async () => {
    const slow = { startup_script: 'echo begun; setsid sleep 600 & sleep 600', startup_script_timeout_seconds: 1 };
    await expect(create('slow', slow)).rejects.toMatchObject({
      status: 400,
      message: expect.stringContaining('startup script did not complete in time after 1s: '),
      details: { output: 'begun\n' },
    });
    expect(await stack.client.environments.execs.result('fuse-slow', 'startup')).toMatchObject({
      exit_code: 124,
      timed_out: true,
      stdout: 'begun\n',
    });
    expect(await stack.vmmPids()).toEqual([]);
  });

  it('fails when a file cannot be where it should, as the client’s mistake', async () => {
    await expect(create('file', { files: { '/etc': base64('x') } })).rejects.toMatchObject({
      status: 400,
      code: 'invalid_argument',
      details: { field: 'files' },
    });
    expect(await stack.vmmPids()).toEqual([]);
  });

  it('that nobody waits for is followed by its events and its log, and goes on when the service dies', async () => {
    const made = await create('async', {
      wait: false,
      startup_script: 'echo one; echo ran >> count; sleep 6; echo two',
      startup_script_timeout_seconds: 3_600,
    });
    expect(made.state).toBe('provisioning');
    const { execs } = stack.client.environments;
    const startup = () => execs.get(made.id, 'startup').catch(() => undefined);
    await expect.poll(async () => (await startup())?.log_end ?? 0, { timeout: 60_000 }).toBeGreaterThan(0);
    await expect(run(made.id, 'true')).rejects.toMatchObject({ status: 409 });
    const written: string[] = [];
    const follow = async () => {
      for await (const item of execs.log(made.id, 'startup', { follow: true }))
        if (item.type === 'stdout') written.push(Buffer.from(item.data).toString());
    };
    const following = follow();
    await stack.end('SIGKILL');
    await stack.start();
    expect((await eventsTo(made.id, ({ state }) => state !== 'provisioning')).at(-1)).toMatchObject({
      state: 'running',
    });
    await following;
    expect(written.join('')).toBe('one\ntwo\n');
    expect(await run(made.id, 'cat count')).toBe('ran\n');
  });

  it('is destroyed at once while its script runs', async () => {
    const waited = create('leave', { startup_script: 'sleep 600', startup_script_timeout_seconds: 55 });
    const failure = waited.catch((error: unknown) => error);
    await expect
      .poll(
        () =>
          stack.client.environments.execs.list('fuse-leave').then(
            (all) => all.length,
            () => 0,
          ),
        { timeout: 60_000 },
      )
      .toBe(1);
    const before = performance.now();
    await stack.client.environments.destroy('fuse-leave');
    expect(performance.now() - before).toBeLessThan(30_000);
    expect(await failure).toMatchObject({ status: 409, code: 'conflict' });
    expect(await stack.vmmPids()).toEqual([]);
  });
});

describe('fuse environment create', { timeout: 300_000 }, () => {
  it('takes files, a script from a file, a healthcheck and ports, and shows the script’s output with --follow', async () => {
    await writeFile(join(directory, 'page.html'), '<p>from here');
    await writeFile(join(directory, 'setup.sh'), `set -e\necho to-stderr >&2\n${SERVE}\n`);
    const { code, stdout, stderr } = await stack.fuse([
      ...['environment', 'create', '--task-id', 'cli', '--ram-mb', '256', '--env', 'WHO=me'],
      ...['--file', `page.html=${join(directory, 'page.html')}`, '--startup-script', `@${join(directory, 'setup.sh')}`],
      ...[
        '--startup-timeout',
        '10m',
        '--expose',
        '8000:web',
        '--healthcheck-http',
        '8000/page.html',
        '--follow',
        '-o',
        'json',
      ],
    ]);
    expect([code, stderr]).toEqual([0, expect.stringContaining('serves me\n')]);
    expect(stderr).toContain('to-stderr\n');
    expect(JSON.parse(stdout)).toMatchObject({ state: 'running', endpoints: [{ as: 'web', port: 8_000 }] });
    await untilHealth('fuse-cli', 'passing');
    const shown = await stack.fuse(['environment', 'get', 'fuse-cli']);
    expect(shown.stdout).toMatch(/^health +passing$/m);
    expect(shown.stdout).toMatch(
      /^endpoints +web \(8000\) at 127\.0\.0\.1:\d+\/v1\/environments\/fuse-cli\/ports\/8000\/connect$/m,
    );
  });

  it('--no-wait is done at once; --follow ends with 1 and the reason when the script fails', async () => {
    const started = await stack.fuse([
      'env',
      'create',
      '--task-id',
      'now',
      '--ram-mb',
      '256',
      '--no-wait',
      '-o',
      'json',
    ]);
    expect([started.code, JSON.parse(started.stdout).state]).toEqual([0, 'provisioning']);
    const failed = await stack.fuse([
      ...['env', 'create', '--task-id', 'bad', '--ram-mb', '256', '--follow', '--startup-script', 'echo why; exit 3'],
    ]);
    expect([failed.code, failed.stdout]).toEqual([1, '']);
    expect(failed.stderr).toContain('why\n');
    expect(failed.stderr).toContain('fuse-bad: failed: startup script: exec exit 3');
    expect(failed.stderr).toContain('hint: fuse environment logs fuse-bad startup');
  });
});
