/** The process with which a create waits for room is killed: whoever asks again under its key gets the environment, and nothing is reserved that nothing has. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { until, untilEmpty } from '../runs/run-testing.ts';
import { callerOf, startTestOrchestrator, type TestOrchestrator } from '../test-orchestrator.ts';

const PROGRAM = fileURLToPath(new URL('../../dist/runs/crashing-orchestrator.js', import.meta.url));

describe('a create that waits for room in a process that is killed', { timeout: 60_000 }, () => {
  let system: TestOrchestrator;
  let callSecond: TestOrchestrator['call'];
  const children: ChildProcess[] = [];
  beforeAll(async () => {
    system = await startTestOrchestrator('postgres', {
      host: { capacity: { cpus: 2, ram_mb: 4_096, vm_count: 2 } },
      config: { takeoverMs: 600 },
    });
    const second = await system.another();
    callSecond = callerOf(() => second.url);
  }, 60_000);
  afterAll(() => system[Symbol.asyncDispose]());
  afterEach(async () => {
    for (const child of children.splice(0)) child.kill('SIGKILL');
    for (const { id } of (await system.call('GET', '/v1/environments')).body.environments)
      await system.call('DELETE', `/v1/environments/${id}`);
    await untilEmpty(system);
    expect(await allocated()).toMatchObject({ cpus: 0, ram_mb: 0, storage_gb: 0, vm_count: 0 });
  });

  const allocated = async () => (await system.call('GET', '/v1/hosts/host-1')).body.allocated;
  const get = (id: string) => system.call('GET', `/v1/environments/${id}`);
  const occupant = async (): Promise<string> => {
    const { status, body } = await system.call('POST', '/v1/environments', { task_id: 'occupant', spec: { cpus: 2 } });
    expect(status).toBe(201);
    return body.id;
  };
  const ask = (call: TestOrchestrator['call'], task_id: string) =>
    call(
      'POST',
      '/v1/environments',
      { task_id, spec: { cpus: 2 }, queue_timeout_seconds: 60 },
      { headers: { 'Idempotency-Key': `key-${task_id}` } },
    );

  /** Asked of a process of its own, which is killed while it waits. */
  async function killedWhileWaiting(task: string): Promise<void> {
    const child = spawn(process.execPath, [PROGRAM, JSON.stringify({ config: system.config, at: 'never' })], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    children.push(child);
    const lines = createInterface({ input: child.stdout as NonNullable<typeof child.stdout> }); // it is a pipe
    const url: string = (await lines[Symbol.asyncIterator]().next()).value;
    const cut = ask(
      callerOf(() => url),
      task,
    ).catch(() => 'cut');
    await until(
      () => get(`fuse-${task}`),
      ({ body }) => body.queued !== undefined,
    );
    const exited = once(child, 'exit');
    child.kill('SIGKILL');
    await exited;
    expect(await cut).toBe('cut');
  }

  it('is the same one for whoever asks again before there is room', async () => {
    const first = await occupant();
    await killedWhileWaiting('again');
    const { body: waiting } = await get('fuse-again');
    const asked = [system.call, callSecond, system.call].map((call) => ask(call, 'again'));
    expect((await get('fuse-again')).body).toMatchObject({ state: 'provisioning', created_at: waiting.created_at });
    await system.call('DELETE', `/v1/environments/${first}`);
    const answers = await Promise.all(asked);
    expect(answers.map(({ status }) => status)).toEqual([201, 201, 201]);
    for (const { body } of answers) expect(body).toMatchObject({ state: 'running', created_at: waiting.created_at });
    expect(system.host.vms.size).toBe(1);
    expect(await allocated()).toMatchObject({ cpus: 2, vm_count: 1 });
  });

  it('is there for whoever asks again when room has come meanwhile, which the dead process was left to use', async () => {
    const first = await occupant();
    await killedWhileWaiting('late');
    await system.call('DELETE', `/v1/environments/${first}`);
    // Of one that does not reconcile: what the leader gives up under it is made anew.
    const { status, body } = await ask(callSecond, 'late');
    expect([status, body.error]).toEqual([201, undefined]);
    expect((await get('fuse-late')).body).toMatchObject({ state: 'running', created_at: body.created_at });
    expect(system.host.vms.size).toBe(1);
    expect(await allocated()).toMatchObject({ cpus: 2, vm_count: 1 });
  });

  it('keeps nobody else from the room when nobody asks again', async () => {
    const first = await occupant();
    await killedWhileWaiting('left');
    await system.call('DELETE', `/v1/environments/${first}`);
    // It starts without anybody, or is given up: its state says which, and what is reserved is what there is.
    const { status } = await until(
      () => get('fuse-left'),
      ({ status: now, body }) => now === 404 || body.state === 'running',
    );
    const lives = status === 200;
    expect(await allocated()).toMatchObject({ cpus: lives ? 2 : 0, vm_count: lives ? 1 : 0 });
    expect(system.host.vms.size).toBe(lives ? 1 : 0);
    if (lives) await system.call('DELETE', '/v1/environments/fuse-left');
    expect((await system.call('POST', '/v1/environments', { task_id: 'next', spec: { cpus: 2 } })).status).toBe(201);
  });
});
