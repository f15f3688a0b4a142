import { Environment, ExecResult, ListEnvironments } from '@fuse/contract';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { engines } from '../db/test-database.ts';
import { type Answer, startTestOrchestrator, type TestOrchestrator } from '../test-orchestrator.ts';

let number = 0;
const newTask = () => `task-${++number}`;

describe.each(engines)('environments on %s', (engine) => {
  let test: TestOrchestrator;
  let call: TestOrchestrator['call'];
  beforeAll(async () => {
    test = await startTestOrchestrator(engine);
    call = test.call;
  }, 60_000);
  afterAll(() => test[Symbol.asyncDispose]());

  const create = async (body: object = {}): Promise<Environment> => {
    const answer = await call('POST', '/v1/environments', { task_id: newTask(), ...body });
    expect(answer).toMatchObject({ status: 201 });
    return Environment.parse(answer.body);
  };
  const exec = (id: string, body: object) => call('POST', `/v1/environments/${id}?action=exec`, body);

  it('are created running, found, listed, and gone after their destruction', async () => {
    const task_id = newTask();
    const created = await create({ task_id, spec: { cpus: 2, labels: null, region: '' } });
    expect(created).toMatchObject({
      id: `fuse-${task_id}`,
      state: 'running',
      task_id,
      host_id: 'host-1',
      url: '',
      spec: { cpus: 2, ram_mb: 512, storage_gb: 2, image: 'base' },
    });
    expect((await call('GET', `/v1/environments/${created.id}`)).body).toEqual(created);
    const listed = ListEnvironments.parse((await call('GET', `/v1/environments?task_id=${task_id}`)).body);
    expect(listed).toEqual({ environments: [created] });
    const vm = [...test.host.vms.values()].find(({ vm }) => vm.state === 'running');
    expect(vm?.vm.shape).toEqual({ cpus: 2, ram_mb: 512, storage_gb: 2 });

    const destroyed = await call('DELETE', `/v1/environments/${created.id}`);
    expect(destroyed).toMatchObject({ status: 204, body: '' });
    for (const method of ['GET', 'DELETE'])
      expect(await call(method, `/v1/environments/${created.id}`)).toMatchObject({
        status: 404,
        body: { error: { code: 'not_found', message: `vm ${created.id} not found` } },
      });
    expect((await call('GET', '/v1/environments')).body).toEqual({ environments: [] });
    expect(test.host.vms.size).toBe(0);
  });

  it('run commands and tell how they ended', async () => {
    const { id } = await create({ env: { GREETING: 'hello' } });
    const done = await exec(id, { shell: 'echo $GREETING $NAME; echo oops >&2; exit 3', env: { NAME: 'you' } });
    expect(done.status).toBe(200);
    expect(ExecResult.parse(done.body)).toMatchObject({
      exit_code: 3,
      stdout: 'hello you\n',
      stderr: 'oops\n',
      stdout_bytes: 10,
      truncated: false,
      timed_out: false,
    });
    const binary = await exec(id, { cmd: ['printf', '\\377\\000a'], encoding: 'base64' });
    expect(binary.body).toMatchObject({ exit_code: 0, stdout: Buffer.from([255, 0, 97]).toString('base64') });
    const lossy = await exec(id, { cmd: ['printf', '\\377a'] });
    expect(lossy.body).toMatchObject({ stdout: '\uFFFDa', lossy: true });
    await call('DELETE', `/v1/environments/${id}`);
  });

  it('keep what a command printed before its time was up, as exit code 124', async () => {
    const { id } = await create();
    const late = await exec(id, { shell: 'echo before; sleep 30', timeout_ms: 300 });
    expect(late.body).toMatchObject({ exit_code: 124, timed_out: true, stdout: 'before\n' });
    await call('DELETE', `/v1/environments/${id}`);
  });

  it('return from a command when it ends, though a child of it holds the pipe', async () => {
    const { id } = await create();
    const began = performance.now();
    expect((await exec(id, { shell: 'sleep 20 & echo started' })).body).toMatchObject({ stdout: 'started\n' });
    expect(performance.now() - began).toBeLessThan(5_000);
    await call('DELETE', `/v1/environments/${id}`);
  });

  it('bound what a command prints and count the rest', async () => {
    const { id } = await create();
    const much = await exec(id, { shell: 'head -c 3000000 /dev/zero | tr "\\0" "é" | head -c 2000001' });
    expect(much.body).toMatchObject({ truncated: true, stdout_bytes: 2_000_001 });
    expect(Buffer.from(much.body.stdout).length).toBeGreaterThan(1_000_000);
    await call('DELETE', `/v1/environments/${id}`);
  });

  it('say that a program does not exist, and leave nothing of it', async () => {
    const { id } = await create();
    expect(await exec(id, { cmd: ['/no/such/program'] })).toMatchObject({
      status: 400,
      body: { error: { code: 'invalid_argument', details: { field: 'cmd' } } },
    });
    expect([...test.host.vms.values()].flatMap(({ execs }) => [...execs.keys()])).toEqual([]);
    await call('DELETE', `/v1/environments/${id}`);
  });

  it('kill the command of a client that went away', async () => {
    const { id } = await create();
    const leaving = new AbortController();
    const waiting = call(
      'POST',
      `/v1/environments/${id}?action=exec`,
      { cmd: ['sleep', '600'] },
      { signal: leaving.signal },
    );
    const execs = () => [...test.host.vms.values()].flatMap(({ execs }) => [...execs.values()]);
    await expect.poll(() => execs().length).toBe(1);
    leaving.abort();
    await expect(waiting).rejects.toThrow();
    await expect.poll(() => execs()[0]?.status.state, { timeout: 5_000 }).toBe('exited');
    await call('DELETE', `/v1/environments/${id}`);
  });

  it('answer within 5 s that the VM died under a command, and say so of the environment', async () => {
    const { id } = await create();
    const waiting = exec(id, { cmd: ['sleep', '600'] });
    await expect.poll(() => [...test.host.vms.values()][0]?.execs.size).toBe(1);
    const [vm] = test.host.vms.keys();
    const died = performance.now();
    test.host.killVm(vm ?? '');
    expect(await waiting).toMatchObject({ status: 502, body: { error: { code: 'vm_lost' } } });
    expect(performance.now() - died).toBeLessThan(5_000);
    expect((await call('GET', `/v1/environments/${id}`)).status).toBe(404);
    await expect.poll(() => test.host.vms.size).toBe(0);
  });

  it('live on while their host agent restarts, and so does a command', async () => {
    const { id } = await create();
    const waiting = exec(id, { shell: 'sleep 1; echo survived' });
    await expect.poll(() => [...test.host.vms.values()][0]?.execs.size).toBe(1);
    await test.host.stop();
    await new Promise((resolve) => setTimeout(resolve, 300));
    await test.host.listen();
    expect((await waiting).body).toMatchObject({ exit_code: 0, stdout: 'survived\n' });
    expect([...test.host.started.values()].every((times) => times === 1)).toBe(true);
    expect((await call('GET', `/v1/environments/${id}`)).body).toMatchObject({ state: 'running' });
    await call('DELETE', `/v1/environments/${id}`);
  });

  it('belong to one task at a time', async () => {
    const task_id = newTask();
    const answers = await Promise.all(Array.from({ length: 10 }, () => call('POST', '/v1/environments', { task_id })));
    const statuses = answers.map(({ status }) => status).sort();
    expect(statuses).toEqual([201, ...Array.from({ length: 9 }, () => 409)]);
    expect(answers.find(({ status }) => status === 409)?.body.error).toMatchObject({
      code: 'conflict',
      message: `task already assigned: task ${task_id} already assigned to vm fuse-${task_id}`,
    });
    await call('DELETE', `/v1/environments/fuse-${task_id}`);
  });

  it('can be made again for the same task while the former one is still going', async () => {
    const task_id = newTask();
    const { id } = await create({ task_id });
    let release = () => {};
    const slow = new Promise<void>((resolve) => {
      release = resolve;
    });
    test.host.before = async ({ method }) => (method === 'DELETE' ? slow : undefined);
    const destroying = call('DELETE', `/v1/environments/${id}`);
    await expect
      .poll(async () => (await call('GET', `/v1/environments/${id}`)).body)
      .toMatchObject({ state: 'destroying', task_id: '' });
    const again = call('POST', '/v1/environments', { task_id });
    release();
    expect(await destroying).toMatchObject({ status: 204 });
    expect(await again).toMatchObject({ status: 201, body: { id, state: 'running', task_id } });
    test.host.before = () => {};
    await call('DELETE', `/v1/environments/${id}`);
  });

  it('are destroyed once by twenty callers at once', async () => {
    const { id } = await create();
    let deletions = 0;
    test.host.before = ({ method }) => void (method === 'DELETE' && deletions++);
    const answers = await Promise.all(Array.from({ length: 20 }, () => call('DELETE', `/v1/environments/${id}`)));
    test.host.before = () => {};
    const statuses = new Set(answers.map(({ status }) => status));
    // Whoever came when it was gone is told so.
    expect(statuses.has(204) && [...statuses].every((status) => status === 204 || status === 404)).toBe(true);
    expect(deletions).toBe(1);
    expect(test.host.vms.size).toBe(0);
  });

  it('are made once for fifty requests with one Idempotency-Key, all of which get the same answer', async () => {
    const task_id = newTask();
    const body = { task_id, spec: { labels: {}, cpus: 1 } };
    const post = (changed: object = {}) =>
      call('POST', '/v1/environments', { ...body, ...changed }, { headers: { 'idempotency-key': task_id } });
    const before = test.host.createdVms;
    const answers = await Promise.all(Array.from({ length: 50 }, () => post()));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([201]));
    expect(new Set(answers.map(({ body }) => JSON.stringify(body))).size).toBe(1);
    expect(test.host.createdVms - before).toBe(1);
    expect(answers.filter(({ headers }) => headers.get('idempotency-replayed') === 'true').length).toBe(49);
    expect(await post({ task_id: newTask() })).toMatchObject({
      status: 409,
      body: { error: { code: 'conflict', details: { field: 'Idempotency-Key' } } },
    });
    await call('DELETE', `/v1/environments/fuse-${task_id}`);
    // Still the answer that it was: the environment that the key made is gone, and no second one is made.
    expect((await post()).body).toEqual(answers[0]?.body);
    expect((await call('GET', `/v1/environments/fuse-${task_id}`)).status).toBe(404);
  });

  it('may be asked for again under the same key when their start failed', async () => {
    const { AppError } = await import('@fuse/contract');
    test.host.before = ({ method }) => {
      if (method === 'PUT') throw new AppError('unavailable', 'the VMM did not start');
    };
    const task_id = newTask();
    const post = () => call('POST', '/v1/environments', { task_id }, { headers: { 'idempotency-key': task_id } });
    expect((await post()).status).toBe(503);
    test.host.before = () => {};
    expect(await post()).toMatchObject({ status: 201, body: { state: 'running' } });
    await call('DELETE', `/v1/environments/fuse-${task_id}`);
  });

  it('never overcommit a host, however many are asked for at once', async () => {
    const answers = await Promise.all(
      Array.from({ length: 100 }, () =>
        call('POST', '/v1/environments', { task_id: newTask(), spec: { ram_mb: 1_024 } }),
      ),
    );
    const of = (status: number) => answers.filter((answer) => answer.status === status);
    expect(of(201).length).toBe(8); // the host has 8 cpus
    expect(of(503).length).toBe(92);
    const [refused] = of(503) as [Answer, ...Answer[]]; // 92 of them
    expect(refused.body.error).toMatchObject({ code: 'unavailable', details: { reason: 'no_room' } });
    expect(refused.headers.get('retry-after')).toBe('5');
    expect(test.host.mostVms).toBeLessThanOrEqual(8);
    const { body: host } = await call('GET', '/v1/hosts/host-1');
    expect(host.allocated).toEqual({ cpus: 8, ram_mb: 8_192, storage_gb: 16, vm_count: 8 });
    await Promise.all(of(201).map(({ body }) => call('DELETE', `/v1/environments/${body.id}`)));
    expect((await call('GET', '/v1/hosts/host-1')).body.allocated).toEqual({
      cpus: 0,
      ram_mb: 0,
      storage_gb: 0,
      vm_count: 0,
    });
  });

  it('leave nothing behind when they cannot start', async () => {
    const { AppError } = await import('@fuse/contract');
    test.host.before = ({ method }) => {
      if (method === 'PUT') throw new AppError('unavailable', 'the VMM did not start');
    };
    const task_id = newTask();
    const failed = await call('POST', '/v1/environments', { task_id });
    test.host.before = () => {};
    expect(failed).toMatchObject({
      status: 503,
      body: { error: { code: 'unavailable', message: `provision vm fuse-${task_id}: the VMM did not start` } },
    });
    expect((await call('GET', `/v1/environments/fuse-${task_id}`)).status).toBe(404);
    expect((await call('GET', '/v1/hosts/host-1')).body.allocated.vm_count).toBe(0);
    expect(test.host.vms.size).toBe(0);
  });

  it('are not said to run when their VM died before the answer came', async () => {
    let cut = false;
    test.host.after = ({ method, path }, response) => {
      if (method !== 'PUT' || cut) return;
      cut = true;
      test.host.killVm(path.split('/')[3] ?? '', 'the guest panicked');
      response.destroy();
    };
    const answer = await call('POST', '/v1/environments', { task_id: newTask() });
    test.host.after = () => {};
    expect(answer).toMatchObject({
      status: 503,
      body: { error: { code: 'unavailable', message: expect.stringContaining('its VM died: the guest panicked') } },
    });
    expect(test.host.vms.size).toBe(0);
  });

  it('are given up when the client goes away while they start', async () => {
    const leaving = new AbortController();
    let reached = false;
    test.host.before = async ({ method }, response) => {
      if (method !== 'PUT') return;
      reached = true;
      await new Promise((resolve) => response.once('close', resolve));
    };
    const task_id = newTask();
    const waiting = call('POST', '/v1/environments', { task_id }, { signal: leaving.signal });
    await expect.poll(() => reached).toBe(true);
    leaving.abort();
    await expect(waiting).rejects.toThrow();
    test.host.before = () => {};
    await expect.poll(async () => (await call('GET', `/v1/environments/fuse-${task_id}`)).status).toBe(404);
    await expect.poll(() => test.host.vms.size).toBe(0);
  });

  it('can be destroyed while they start', async () => {
    let release = () => {};
    const slow = new Promise<void>((resolve) => {
      release = resolve;
    });
    test.host.after = async ({ method }) => (method === 'PUT' ? slow : undefined);
    const task_id = newTask();
    const creating = call('POST', '/v1/environments', { task_id });
    await expect.poll(() => test.host.vms.size).toBe(1);
    const destroyed = await call('DELETE', `/v1/environments/fuse-${task_id}`);
    release();
    test.host.after = () => {};
    expect(destroyed.status).toBe(204);
    expect(await creating).toMatchObject({ status: 409, body: { error: { code: 'conflict' } } });
    expect(test.host.vms.size).toBe(0);
  });

  it('are listed page by page, each once, while others come and go', async () => {
    const made = await Promise.all(Array.from({ length: 7 }, () => create()));
    const seen: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await call('GET', `/v1/environments?limit=2${cursor === undefined ? '' : `&cursor=${cursor}`}`);
      for (const { id } of page.body.environments) seen.push(id);
      cursor = page.body.next_cursor;
      const [first] = made;
      if (seen.length === 2) await call('DELETE', `/v1/environments/${first?.id}`);
    } while (cursor !== undefined);
    expect(seen).toEqual(made.map(({ id }) => id).sort());
    expect((await call('GET', '/v1/environments?state=failed')).body).toEqual({ environments: [] });
    expect((await call('GET', '/v1/environments?host_id=nope')).body).toEqual({ environments: [] });
    expect((await call('GET', '/v1/environments?limit=x')).status).toBe(200);
    expect(await call('GET', '/v1/environments?cursor=nonsense')).toMatchObject({
      status: 400,
      body: { error: { message: 'invalid pagination cursor' } },
    });
    await Promise.all(made.map(({ id }) => call('DELETE', `/v1/environments/${id}`)));
  });
});
