/** Creates that put files, run a script, are watched, expose ports, or are not waited for. */
import { readFile, writeFile } from 'node:fs/promises';
import { Environment, EnvironmentEvent } from '@fuse/contract';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { engines } from '../db/test-database.ts';
import { startTestOrchestrator, TEST_TOKEN, type TestOrchestrator } from '../test-orchestrator.ts';

let number = 0;
const newTask = () => `task-${++number}`;
const base64 = (text: string) => Buffer.from(text).toString('base64');

describe.each(engines)('creates on %s', (engine) => {
  let test: TestOrchestrator;
  let call: TestOrchestrator['call'];
  beforeAll(async () => {
    test = await startTestOrchestrator(engine, { config: { publicAddress: 'fuse.example.com:443' } });
    call = test.call;
  }, 60_000);
  afterAll(() => test[Symbol.asyncDispose]());
  afterEach(async () => {
    for (const { id } of (await call('GET', '/v1/environments')).body.environments)
      await destroy(encodeURIComponent(id));
    await expect.poll(() => test.host.vms.size, { timeout: 20_000 }).toBe(0);
  });

  const create = (body: object, key?: string) =>
    call(
      'POST',
      '/v1/environments',
      { task_id: newTask(), ...body },
      key === undefined ? {} : { headers: { 'Idempotency-Key': key } },
    );
  const destroy = (id: string) => call('DELETE', `/v1/environments/${id}`);
  const get = async (id: string) => (await call('GET', `/v1/environments/${id}`)).body;
  const vmOf = (tag: string) => {
    const found = [...test.host.vms.values()].find(({ env }) => env.TAG === tag);
    if (found === undefined) throw new Error(`no VM has the tag ${tag}`);
    return found;
  };
  /** All of them, to the end of the environment or to one that is `enough`. */
  /** Its states and verdicts, to the end. */
  const events = async (id: string, enough: (event: EnvironmentEvent) => boolean = () => false) => {
    const response = await fetch(`${test.orchestrator.url}/v1/environments/${id}/events`, {
      headers: { authorization: `Bearer ${TEST_TOKEN}` },
    });
    let text = '';
    const seen: EnvironmentEvent[] = [];
    for await (const chunk of response.body ?? []) {
      text += Buffer.from(chunk as Uint8Array).toString();
      for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
        const [, data] = /^data: (.*)$/m.exec(text.slice(0, end)) ?? [];
        text = text.slice(end + 2);
        if (data === undefined) continue;
        const event = EnvironmentEvent.parse(JSON.parse(data));
        if (event.event === 'step') continue;
        seen.push(event);
        if (enough(event)) return seen;
      }
    }
    return seen;
  };

  it('put files, then run the script with the environment’s variables, then answer', async () => {
    const made = await create({
      env: { TAG: 'order', WHO: 'you' },
      files: { '/workspace/in.txt': base64('hello '), '/opt/deep/bin': 'AAH/' },
      startup_script: 'cat in.txt > out.txt; echo $WHO >> out.txt; cat out.txt; echo aside >&2',
      startup_script_timeout_seconds: 55,
    });
    expect(made).toMatchObject({ status: 201, body: { state: 'running' } });
    expect(Environment.parse(made.body)).toEqual(made.body);
    const { root, execs } = vmOf('order');
    expect(await readFile(`${root}/workspace/out.txt`, 'utf8')).toBe('hello you\n');
    expect([...(await readFile(`${root}/opt/deep/bin`))]).toEqual([0, 1, 255]);
    expect(Buffer.concat(execs.get('startup')?.stdout ?? []).toString()).toBe('hello you\n');
    await destroy(made.body.id);
  });

  it('fail with the script’s exit code and the end of its output, and leave nothing', async () => {
    const task_id = newTask();
    const script = 'seq 1 3000; echo broken >&2; exit 7';
    const failed = await create({ task_id, startup_script: script });
    expect(failed.body.error).toEqual({
      code: 'invalid_argument',
      message: `provision vm fuse-${task_id}: startup script: exec exit 7`,
      details: { field: 'startup_script', exec_id: 'startup', exit_code: '7', output: expect.any(String) },
      hint: expect.stringContaining(`/v1/environments/fuse-${task_id}/execs/startup/result`),
    });
    expect(failed.status).toBe(400);
    const { output } = failed.body.error.details;
    expect(output).toMatch(/2999\n3000\nbroken\n$|broken\n.*2999\n3000\n$/s);
    expect(Buffer.byteLength(output)).toBeLessThanOrEqual(4_096);
    expect(await get(`fuse-${task_id}`)).toMatchObject({ error: { code: 'not_found' } });
    expect(test.host.vms.size).toBe(0);
    const kept = await call('GET', `/v1/environments/fuse-${task_id}/execs/startup/result`);
    expect(kept).toMatchObject({ status: 200, body: { exit_code: 7, stderr: 'broken\n' } });
    expect(kept.body.stdout).toMatch(/^1\n2\n.*\n3000\n$/s);
    // The task is free.
    const again = await create({ task_id, startup_script: 'true' });
    expect(again.status).toBe(201);
    await destroy(again.body.id);
  });

  it('say no secret and no variable in the error, wherever it is cut', async () => {
    const [secret, variable] = ['a secret of some length', 'a variable of some length'];
    for (const rest of [4_090, 4_096]) {
      const failed = await create({
        env: { MINE: variable },
        secrets: { mine: secret },
        startup_script: `printf '%s' "${secret}"; head -c ${rest} /dev/zero | tr '\\0' x; printf %s "$MINE"; exit 5`,
      });
      expect(failed.body.error.details.output).toMatch(/^.{0,10}x+\[REDACTED\]$/);
      expect(JSON.stringify(failed.body)).not.toContain('length');
    }
  });

  it('fail when the script takes longer than it may', async () => {
    const failed = await create({ startup_script: 'echo begun; sleep 60', startup_script_timeout_seconds: 1 });
    expect(failed).toMatchObject({
      status: 400,
      body: {
        error: {
          code: 'invalid_argument',
          message: expect.stringMatching(/^startup script did not complete in time after 1s: /),
          details: { exec_id: 'startup', output: 'begun\n' },
        },
      },
    });
    expect(test.host.vms.size).toBe(0);
  });

  it('fail when a file cannot be written there, as the client’s mistake', async () => {
    const failed = await create({ files: { '/a': '', '/a/b': '' }, startup_script: 'true' });
    // The test host does not say whose mistake it was; a real one does.
    expect([400, 500, 503]).toContain(failed.status);
    expect(test.host.vms.size).toBe(0);
  });

  it('with a key: a failed one leaves it free, a finished one is answered again', async () => {
    const body = { task_id: newTask(), startup_script: 'exit 1' };
    expect((await create(body, `failing-${engine}`)).status).toBe(400);
    expect((await create(body, `failing-${engine}`)).status).toBe(400);
    expect(test.host.started.get('startup')).toBeGreaterThan(1);
    const good = { task_id: newTask(), startup_script: 'true' };
    const [first, second] = [await create(good, `good-${engine}`), await create(good, `good-${engine}`)];
    expect(second.body).toEqual(first.body);
    await destroy(first.body.id);
  });

  it('that nobody waits for answer 202 at once, and tell the rest as events', async () => {
    const made = await create({
      wait: false,
      env: { TAG: 'async' },
      startup_script: 'echo begun; while [ ! -e go ]; do sleep 0.05; done',
    });
    expect(made).toMatchObject({ status: 202, body: { state: 'provisioning' } });
    const { id } = Environment.parse(made.body);
    const seen = events(id, ({ state }) => state === 'running');
    expect(await get(id)).toMatchObject({ state: 'provisioning' });
    await expect.poll(() => test.host.started.get('startup')).toBeGreaterThan(0);
    expect(await call('POST', `/v1/environments/${id}?action=pause`)).toMatchObject({ status: 409 });
    await expect.poll(() => vmOf('async').execs.size).toBe(1);
    expect(await call('POST', `/v1/environments/${id}?action=exec`, { cmd: ['true'] })).toMatchObject({
      status: 409,
      body: { error: { details: { state: 'provisioning' } } },
    });
    const log = call('GET', `/v1/environments/${id}/execs/startup/log?follow=1&stream=text`);
    await writeFile(`${vmOf('async').root}/workspace/go`, '');
    expect(await log).toMatchObject({ status: 200, body: 'begun\n' });
    expect((await seen).map(({ state }) => state)).toEqual(['provisioning', 'running']);
    expect((await call('POST', `/v1/environments/${id}?action=exec`, { cmd: ['true'] })).status).toBe(200);
    await destroy(id);
  });

  it('that nobody waits for may fail: the events say how', async () => {
    const made = await create({ wait: false, startup_script: 'sleep 0.3; exit 3' });
    expect(made.status).toBe(202);
    const seen = await events(made.body.id);
    expect(seen.map(({ state }) => state)).toEqual(['provisioning', 'failed']);
    expect(seen.at(-1)).toMatchObject({ error: 'startup script: exec exit 3' });
    expect(test.host.vms.size).toBe(0);
  });

  it('that nobody waits for, with a key: one environment, answered as it is now', async () => {
    const before = test.host.createdVms;
    const body = { task_id: newTask(), wait: false, startup_script: 'sleep 0.3; exit 4' };
    const answers = await Promise.all(Array.from({ length: 20 }, () => create(body, `async-${engine}`)));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([202]));
    expect(new Set(answers.map(({ body: { id, created_at } }) => `${id} ${created_at}`)).size).toBe(1);
    await events(answers[0]?.body.id).catch(() => {});
    await expect
      .poll(async () => (await create(body, `async-${engine}`)).body, { timeout: 20_000 })
      .toMatchObject({ state: 'failed', error: 'startup script: exec exit 4' });
    const replayed = await create(body, `async-${engine}`);
    expect(replayed.status).toBe(202);
    expect(replayed.headers.get('idempotency-replayed')).toBe('true');
    expect(test.host.createdVms).toBe(before + 1);
    expect(await create({ ...body, wait: true }, `async-${engine}`)).toMatchObject({ status: 409 });
  });

  it('are given up when their client goes away, unless they have a key', async () => {
    const client = new AbortController();
    const body = { task_id: newTask(), env: { TAG: 'left' }, startup_script: 'sleep 60' };
    const cut = call('POST', '/v1/environments', body, { signal: client.signal });
    cut.catch(() => {});
    await expect.poll(() => vmOf('left').execs.size).toBe(1);
    client.abort();
    await expect(cut).rejects.toThrow();
    await expect.poll(() => test.host.vms.size).toBe(0);
  });

  it('are destroyed at once while their script runs', async () => {
    const task_id = newTask();
    const waited = create({ task_id, env: { TAG: 'destroyed' }, startup_script: 'sleep 60' });
    await expect.poll(() => vmOf('destroyed').execs.size).toBe(1);
    expect((await destroy(`fuse-${task_id}`)).status).toBe(204);
    expect(await waited).toMatchObject({ status: 409, body: { error: { code: 'conflict' } } });
    const unwaited = await create({ wait: false, env: { TAG: 'destroyed' }, startup_script: 'sleep 60' });
    await expect.poll(() => vmOf('destroyed').execs.size).toBe(1);
    expect((await destroy(unwaited.body.id)).status).toBe(204);
    expect(test.host.vms.size).toBe(0);
  });

  it('end with their lifetime though their script has not', async () => {
    const made = await create({ wait: false, spec: { max_runtime_seconds: 1 }, startup_script: 'sleep 60' });
    const seen = await events(made.body.id);
    expect(seen.map(({ state }) => state)).toEqual(['provisioning', 'destroying', 'destroyed']);
    expect(seen.at(-1)?.error).toMatch(/^max_runtime_seconds: its startup did not end in \d+ s$/);
    expect(test.host.vms.size).toBe(0);
  });

  it('tell where exposed ports are', async () => {
    const task_id = `a b/${newTask()}`;
    const made = await create({ task_id, expose: [{ port: 80, as: 'web' }, { port: 5_432 }] });
    const base = `fuse.example.com:443/v1/environments/${encodeURIComponent(`fuse-${task_id}`)}/ports`;
    expect(made.body.endpoints).toEqual([
      { as: 'web', url: `${base}/80/connect`, port: 80 },
      { url: `${base}/5432/connect`, port: 5_432 },
    ]);
    const id = encodeURIComponent(made.body.id);
    expect((await get(id)).endpoints).toEqual(made.body.endpoints);
    await destroy(id);
    const bare = await create({ expose: [] });
    expect(bare.body).not.toHaveProperty('endpoints');
    await destroy(bare.body.id);
  });

  it('with a healthcheck are watched from their start on: verdicts are shown, changes are events', async () => {
    const healthcheck = { http: { port: 80, path: '/up' }, interval_seconds: 5 };
    const made = await create({ env: { TAG: 'watched' }, healthcheck });
    const { id } = made.body;
    expect(made.body).not.toHaveProperty('health');
    expect(vmOf('watched').healthcheck).toEqual(healthcheck);
    const since = new Date().toISOString();
    const say = (health: object) => test.host.setHealth(vmOf('watched').vm.id, { state: 'starting', since, ...health });
    await expect.poll(async () => (await get(id)).health, { timeout: 10_000 }).toMatchObject({ state: 'starting' });
    say({ state: 'passing' });
    await expect.poll(async () => (await get(id)).health, { timeout: 10_000 }).toEqual({ state: 'passing', since });
    // Counting on is no event, and what a guest says cannot break ours.
    say({ state: 'failing', failures: 3, message: `bad\0${'x'.repeat(5_000)}` });
    await expect.poll(async () => (await get(id)).health?.failures, { timeout: 10_000 }).toBe(3);
    say({ state: 'failing', failures: 4 });
    await expect
      .poll(async () => (await get(id)).health, { timeout: 10_000 })
      .toEqual({ state: 'failing', since, failures: 4 });
    const listed = (await call('GET', '/v1/environments')).body.environments;
    expect(listed).toEqual([
      expect.objectContaining({ id, state: 'running', health: expect.objectContaining({ failures: 4 }) }),
    ]);
    // A guest that was booted anew knows of none: it is told again.
    test.host.setHealth(vmOf('watched').vm.id, undefined);
    await expect.poll(() => vmOf('watched').vm.health, { timeout: 10_000 }).toMatchObject({ state: 'starting' });
    say({ state: 'failing', failures: 3 });
    await expect.poll(async () => (await get(id)).health?.failures, { timeout: 10_000 }).toBe(3);
    const now = await events(id, ({ event }) => event === 'health');
    expect(now).toMatchObject([
      { event: 'state', state: 'running' },
      { event: 'health', state: 'running', health: { state: 'failing', failures: 3 } },
    ]);
  });

  it('forks are watched and exposed as their source, without its startup; snapshots carry neither', async () => {
    const before = test.host.started.get('startup') ?? 0;
    const source = await create({
      env: { TAG: 'source' },
      startup_script: 'echo made > it',
      healthcheck: { exec: ['test', '-e', 'it'] },
      expose: [{ port: 80 }],
    });
    const fork = await call('POST', `/v1/environments/${source.body.id}?action=fork`, {});
    expect(fork.status).toBe(201);
    expect(fork.body.endpoints).toEqual([
      { port: 80, url: `fuse.example.com:443/v1/environments/${fork.body.id}/ports/80/connect` },
    ]);
    const checked = [...test.host.vms.values()].map(({ healthcheck }) => healthcheck);
    expect(checked).toEqual([{ exec: ['test', '-e', 'it'] }, { exec: ['test', '-e', 'it'] }]);
    expect(test.host.started.get('startup')).toBe(before + 1);
    await destroy(fork.body.id);

    const snapshot = await call('POST', `/v1/environments/${source.body.id}/snapshots`, {});
    const seed = { seed_snapshot_id: snapshot.body.id, env: { TAG: 'seeded' } };
    const seeded = await create({
      ...seed,
      files: { '/workspace/more': base64('more') },
      startup_script: 'cat it more',
    });
    expect(seeded.status).toBe(201);
    expect(seeded.body).not.toHaveProperty('endpoints');
    expect(vmOf('seeded').healthcheck).toBeUndefined();
    expect(Buffer.concat(vmOf('seeded').execs.get('startup')?.stdout ?? []).toString()).toBe('made\nmore');
    await destroy(seeded.body.id);
    await destroy(source.body.id);
  });

  it('keep no file or script of a startup that is over', async () => {
    const secret = 'a-secret-of-this-test';
    const made = await create({ files: { '/s': base64(secret) }, startup_script: `: ${secret}` });
    const text = JSON.stringify([made.body, await get(made.body.id), await events(made.body.id, () => true)]);
    expect(text).not.toContain(secret);
    await destroy(made.body.id);
  });
});
