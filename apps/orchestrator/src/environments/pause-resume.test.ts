/** Pause and resume through the API. What happens when processes die on the way: reconciling/pause-takeover.test.ts. */
import { AppError, Environment, ListEnvironments } from '@fuse/contract';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { engines } from '../db/test-database.ts';
import { startTestOrchestrator, TEST_TOKEN, type TestOrchestrator } from '../test-orchestrator.ts';

let number = 0;
const newTask = () => `pause-${++number}`;

/** Holds calls of one kind at the host until it is opened. */
function gate() {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

describe.each(engines)('pause and resume on %s', (engine) => {
  let test: TestOrchestrator;
  let call: TestOrchestrator['call'];
  beforeAll(async () => {
    test = await startTestOrchestrator(engine);
    call = test.call;
  }, 60_000);
  afterAll(() => test[Symbol.asyncDispose]());
  afterEach(async () => {
    test.host.before = () => {};
    test.host.after = () => {};
    test.host.damaged.clear();
    const { environments } = ListEnvironments.parse((await call('GET', '/v1/environments')).body);
    await Promise.all(environments.map(({ id }) => call('DELETE', `/v1/environments/${id}`)));
    expect(test.host.vms.size).toBe(0);
  });

  const create = async (body: object = {}): Promise<Environment> => {
    const answer = await call('POST', '/v1/environments', { task_id: newTask(), ...body });
    expect(answer).toMatchObject({ status: 201 });
    return Environment.parse(answer.body);
  };
  const act = (id: string, action: string, body?: object) =>
    call('POST', `/v1/environments/${id}?action=${action}`, body);
  const get = async (id: string) => (await call('GET', `/v1/environments/${id}`)).body;
  const allocated = async () => (await call('GET', '/v1/hosts/host-1')).body.allocated;
  const vmState = () => [...test.host.vms.values()][0]?.vm.state;
  const vmId = () => [...test.host.vms.keys()][0] ?? '';
  const countCalls = (suffix: string) => {
    const counted = { calls: 0 };
    test.host.before = ({ path }) => void (path.endsWith(suffix) && counted.calls++);
    return counted;
  };

  it('give back all but the disk, keep files, and tell each state', async () => {
    const { id } = await create();
    const events = fetch(`${test.orchestrator.url}/v1/environments/${id}/events`, {
      headers: { authorization: `Bearer ${TEST_TOKEN}` },
    });
    await act(id, 'exec', { shell: 'echo kept >file' });
    const paused = await act(id, 'pause');
    expect(paused).toMatchObject({ status: 200, body: { id, state: 'paused', paused_at: expect.any(String) } });
    expect(vmState()).toBe('paused');
    expect(await allocated()).toEqual({ cpus: 0, ram_mb: 0, storage_gb: 2, vm_count: 0 });
    expect((await call('GET', '/v1/environments?state=paused')).body.environments).toEqual([paused.body]);
    const resumed = await act(id, 'resume');
    expect(resumed).toMatchObject({ status: 200, body: { id, state: 'running' } });
    expect(resumed.body.paused_at).toBeUndefined();
    expect(await allocated()).toEqual({ cpus: 1, ram_mb: 512, storage_gb: 2, vm_count: 1 });
    expect((await act(id, 'exec', { cmd: ['cat', 'file'] })).body).toMatchObject({ stdout: 'kept\n' });
    await call('DELETE', `/v1/environments/${id}`);
    expect(await (await events).text()).toMatch(/"pausing".*"paused".*"resuming".*"running".*"destroyed"/s);
  });

  it('let a command go on where it stood', async () => {
    const { id } = await create();
    const running = act(id, 'exec', { shell: 'for i in 1 2 3 4 5 6; do sleep 0.1; echo $i; done' });
    await expect.poll(() => [...test.host.vms.values()][0]?.execs.size).toBe(1);
    expect((await act(id, 'pause')).status).toBe(200);
    expect((await act(id, 'resume')).status).toBe(200);
    expect((await running).body).toMatchObject({ exit_code: 0, stdout: '1\n2\n3\n4\n5\n6\n' });
  });

  it('are done once for ten callers at once, all of whom succeed', async () => {
    const { id } = await create();
    for (const [action, state] of [
      ['pause', 'paused'],
      ['resume', 'running'],
    ] as const) {
      const counted = countCalls(`/${action}`);
      const answers = await Promise.all(Array.from({ length: 10 }, () => act(id, action)));
      for (const answer of answers) expect(answer).toMatchObject({ status: 200, body: { state } });
      expect(counted.calls).toBe(1);
      expect((await act(id, action)).status).toBe(200);
      expect(counted.calls).toBe(1);
    }
  });

  it('are refused in other states, naming them', async () => {
    expect((await act('fuse-nothing', 'pause')).status).toBe(404);
    const { opened, open } = gate();
    test.host.before = ({ method }) => (method === 'PUT' ? opened : undefined);
    const task_id = newTask();
    const creating = call('POST', '/v1/environments', { task_id });
    const id = `fuse-${task_id}`;
    await expect.poll(async () => (await get(id)).state).toBe('provisioning');
    for (const action of ['pause', 'resume'])
      expect(await act(id, action)).toMatchObject({
        status: 409,
        body: { error: { code: 'conflict', details: { state: 'provisioning' } } },
      });
    open();
    expect((await creating).status).toBe(201);
  });

  it('refuse the other one while one is under way', async () => {
    const { id } = await create();
    for (const [action, other, state] of [
      ['pause', 'resume', 'pausing'],
      ['resume', 'pause', 'resuming'],
    ] as const) {
      const { opened, open } = gate();
      test.host.before = ({ path }) => (path.endsWith(`/${action}`) ? opened : undefined);
      const moving = act(id, action);
      await expect.poll(async () => (await get(id)).state).toBe(state);
      expect(await act(id, other)).toMatchObject({ status: 409, body: { error: { details: { state } } } });
      open();
      expect((await moving).status).toBe(200);
    }
  });

  it('leave a paused one alone unless auto_resume says otherwise', async () => {
    const { id } = await create();
    await act(id, 'pause');
    expect(await act(id, 'exec', { cmd: ['true'] })).toMatchObject({
      status: 409,
      body: {
        error: {
          code: 'conflict',
          details: { state: 'paused' },
          hint: expect.stringContaining(`/v1/environments/${id}?action=resume`),
        },
      },
    });
    expect(vmState()).toBe('paused');
  });

  it('resume by themselves, once, for whoever executes', async () => {
    const { id } = await create({ auto_resume: true });
    await act(id, 'pause');
    const counted = countCalls('/resume');
    const answers = await Promise.all(Array.from({ length: 10 }, () => act(id, 'exec', { cmd: ['echo', 'hi'] })));
    for (const answer of answers) expect(answer).toMatchObject({ status: 200, body: { stdout: 'hi\n' } });
    expect(counted.calls).toBe(1);
  });

  it('resume by themselves what is still being paused', async () => {
    const { id } = await create({ auto_resume: true });
    const { opened, open } = gate();
    test.host.before = ({ path }) => (path.endsWith('/pause') ? opened : undefined);
    const pausing = act(id, 'pause');
    await expect.poll(async () => (await get(id)).state).toBe('pausing');
    const done = act(id, 'exec', { cmd: ['echo', 'hi'] });
    open();
    expect((await pausing).status).toBe(200);
    expect(await done).toMatchObject({ status: 200, body: { stdout: 'hi\n' } });
  });

  it.each(['before', 'after'] as const)('run a command once that met a pause %s it was started', async (when) => {
    const { id } = await create({ auto_resume: true });
    let isPaused = false;
    test.host[when] = async ({ path, method }) => {
      if (!path.includes('/execs/') || method !== 'PUT' || isPaused) return;
      isPaused = true;
      expect((await act(id, 'pause')).status).toBe(200);
      if (when === 'after') throw new AppError('conflict', 'the VM is paused');
    };
    const done = act(id, 'exec', { shell: 'sleep 0.2; echo ran' });
    if (when === 'after') {
      await expect.poll(async () => (await get(id)).state, { timeout: 10_000 }).toBe('paused');
      await act(id, 'resume'); // the command waits for nothing else
    }
    expect(await done).toMatchObject({ status: 200, body: { stdout: 'ran\n' } });
    expect([...test.host.vms.values()].flatMap(({ execs }) => [...execs.keys()]).length).toBe(1);
  });

  it('make a command wait for a resume under way', async () => {
    const { id } = await create();
    await act(id, 'pause');
    const { opened, open } = gate();
    test.host.before = ({ path }) => (path.endsWith('/resume') ? opened : undefined);
    const resuming = act(id, 'resume');
    await expect.poll(async () => (await get(id)).state).toBe('resuming');
    const done = act(id, 'exec', { cmd: ['echo', 'hi'] });
    open();
    expect(await done).toMatchObject({ status: 200, body: { stdout: 'hi\n' } });
    expect((await resuming).status).toBe(200);
  });

  it('say that the memory is damaged, and keep it paused', async () => {
    const { id } = await create({ auto_resume: true });
    await act(id, 'pause');
    test.host.damaged.add(vmId());
    for (const answer of [await act(id, 'resume'), await act(id, 'exec', { cmd: ['true'] })])
      expect(answer).toMatchObject({ status: 500, body: { error: { code: 'integrity_error' } } });
    expect(await get(id)).toMatchObject({
      state: 'paused',
      paused_at: expect.any(String),
      error: expect.stringContaining('digest'),
    });
    expect(await allocated()).toMatchObject({ ram_mb: 0 });
    test.host.damaged.clear();
    const resumed = await act(id, 'resume');
    expect(resumed).toMatchObject({ status: 200, body: { state: 'running' } });
    expect(resumed.body.error).toBeUndefined();
  });

  it('let it run on when the host cannot pause it, and say why', async () => {
    const { id } = await create();
    test.host.before = ({ path }) => {
      if (path.endsWith('/pause')) throw new AppError('unavailable', 'no disk left for its memory');
    };
    expect(await act(id, 'pause')).toMatchObject({
      status: 503,
      body: { error: { code: 'unavailable', message: `pause vm ${id}: no disk left for its memory` } },
    });
    expect(await get(id)).toMatchObject({ state: 'running', error: expect.stringContaining('no disk left') });
    test.host.before = () => {};
    const paused = await act(id, 'pause');
    expect(paused).toMatchObject({ status: 200, body: { state: 'paused' } });
    expect(paused.body.error).toBeUndefined();
  });

  it('fail with a VM that died on the way', async () => {
    const { id } = await create();
    test.host.before = ({ path }) => {
      if (path.endsWith('/pause')) test.host.killVm(vmId(), 'the guest panicked');
    };
    expect(await act(id, 'pause')).toMatchObject({
      status: 502,
      body: { error: { code: 'vm_lost', message: expect.stringContaining('the guest panicked') } },
    });
    expect((await call('GET', `/v1/environments/${id}`)).status).toBe(404);
    await expect.poll(() => test.host.vms.size).toBe(0);
  });

  it('are finished though the answer of the host is lost', async () => {
    const { id } = await create();
    for (const action of ['pause', 'resume']) {
      let cuts = 2;
      test.host.after = ({ path }, response) => {
        if (path.endsWith(`/${action}`) && cuts-- > 0) response.destroy();
      };
      expect((await act(id, action)).status).toBe(200);
    }
  });

  it('give way to a destruction in every state', async () => {
    const paused = await create();
    await act(paused.id, 'pause');
    expect((await call('DELETE', `/v1/environments/${paused.id}`)).status).toBe(204);
    expect(await allocated()).toEqual({ cpus: 0, ram_mb: 0, storage_gb: 0, vm_count: 0 });
    for (const [action, state] of [
      ['pause', 'pausing'],
      ['resume', 'resuming'],
    ] as const) {
      test.host.before = () => {};
      const { id } = await create();
      if (action === 'resume') await act(id, 'pause');
      const { opened, open } = gate();
      test.host.before = ({ path }) => (path.endsWith(`/${action}`) ? opened : undefined);
      const moving = act(id, action);
      await expect.poll(async () => (await get(id)).state).toBe(state);
      expect((await call('DELETE', `/v1/environments/${id}`)).status).toBe(204);
      open();
      expect((await moving).status).toBe(409);
      expect(test.host.vms.size).toBe(0);
    }
  });

  it('stay paused while their host is full, and never overcommit it', async () => {
    const first = await create({ spec: { cpus: 4 } });
    const second = await create({ spec: { cpus: 4 } });
    await act(first.id, 'pause');
    const third = await create({ spec: { cpus: 4 } });
    const refused = await act(first.id, 'resume');
    expect(refused).toMatchObject({
      status: 503,
      body: { error: { code: 'unavailable', details: { reason: 'no_room', hosts: 'host-1 does not fit 4CPU/512MB' } } },
    });
    expect(refused.headers.get('retry-after')).toBe('5');
    expect(await get(first.id)).toMatchObject({ state: 'paused' });
    await call('DELETE', `/v1/environments/${third.id}`);
    // For the room of one: a resume against many creates, over and over.
    for (let round = 0; round < 5; round += 1) {
      const made = Array.from({ length: 6 }, () =>
        call('POST', '/v1/environments', { task_id: newTask(), spec: { cpus: 4 } }),
      );
      const [resumed, ...created] = await Promise.all([act(first.id, 'resume'), ...made]);
      const winners = [resumed, ...created].filter((answer) => answer !== undefined && answer.status < 300);
      expect(winners.length).toBe(1);
      expect(await allocated()).toMatchObject({ cpus: 8, vm_count: 2 });
      for (const answer of created)
        if (answer.status === 201) await call('DELETE', `/v1/environments/${answer.body.id}`);
      await act(first.id, 'pause');
    }
    expect(test.host.mostRunning).toBeLessThanOrEqual(8);
    expect(await get(second.id)).toMatchObject({ state: 'running' });
  });

  it('keep what a client asked of its lifetime', async () => {
    const asked = {
      idle_action: 'pause',
      auto_resume: true,
      checkpoint_interval_seconds: 3_600,
      checkpoint_keep: 2,
    };
    const { id } = await create({ ...asked, spec: { idle_timeout_seconds: 60 } });
    expect(await get(id)).toMatchObject(asked);
    expect(await create()).toMatchObject({ idle_action: 'destroy', auto_resume: false });
    for (const [field, value] of [
      ['idle_action', 'sleep'],
      ['auto_resume', 'yes'],
      ['checkpoint_interval_seconds', 9],
      ['checkpoint_keep', 0],
    ] as const)
      expect(await call('POST', '/v1/environments', { task_id: newTask(), [field]: value })).toMatchObject({
        status: 400,
        body: { error: { code: 'invalid_argument', details: { field } } },
      });
  });
});
