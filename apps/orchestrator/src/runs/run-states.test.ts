import { AppError } from '@fuse/contract';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { engines } from '../db/test-database.ts';
import { startTestOrchestrator, type TestOrchestrator } from '../test-orchestrator.ts';
import { defaultRunConfig } from './run-config.ts';
import {
  bytesIn,
  create,
  eventsOf,
  get,
  runToEnd,
  statesIn,
  untilEmpty,
  untilEnded,
  untilState,
} from './run-testing.ts';

const nothing = async () => {};

describe.each(engines)('the life of a run on %s', (engine) => {
  let system: TestOrchestrator;
  beforeAll(async () => {
    system = await startTestOrchestrator(engine, {
      config: {
        runs: {
          ...defaultRunConfig,
          hostLostAfterMs: 1_500,
          limits: { ...defaultRunConfig.limits, maxLogBytes: 100_000 },
        },
      },
    });
  }, 60_000);
  afterAll(async () => system[Symbol.asyncDispose]());
  afterEach(async () => {
    system.host.before = nothing;
    system.host.after = nothing;
    await untilEmpty(system);
  });

  /** Holds calls of that method and path back until released. */
  function holdCalls(method: string, path: RegExp) {
    let release: () => void = () => {};
    const released = new Promise<void>((resolve) => {
      release = resolve;
    });
    let reached: () => void = () => {};
    const held = new Promise<void>((resolve) => {
      reached = resolve;
    });
    system.host.before = async (call) => {
      if (call.method !== method || !path.test(call.path)) return;
      reached();
      await released;
    };
    return { held, release };
  }

  it('succeeds with its streams, its outputs and every timing', async () => {
    const run = await runToEnd(system.call, {
      shell: 'cat in.txt; echo warn >&2; mkdir -p out; printf "{}" > out/r.json; cat > out/stdin.txt',
      files: [{ path: 'in.txt', content: 'hello\n' }],
      stdin: 'typed',
      env: { A: 'b' },
      outputs: ['out/*'],
      labels: { team: 'x' },
      limits: { cpus: 2, ram_mb: 256, timeout_ms: 10_000 },
    });
    expect(run).toMatchObject({
      state: 'succeeded',
      image: 'base',
      exit_code: 0,
      oom_killed: false,
      stdout: 'hello\n',
      stderr: 'warn\n',
      stdout_bytes: 6,
      stderr_bytes: 5,
      truncated: false,
      encoding: 'utf8',
      labels: { team: 'x' },
      limits: { cpus: 2, ram_mb: 256, storage_gb: 2, timeout_ms: 10_000 },
    });
    expect(run.error).toBeUndefined();
    expect(run.lossy).toBeUndefined();
    expect(Object.keys(run.timings)).toEqual(['admit_ms', 'queue_ms', 'start_ms', 'run_ms', 'save_ms', 'destroy_ms']);
    for (const ms of Object.values(run.timings)) expect(ms).toBeGreaterThanOrEqual(0);
    const bySize = Object.fromEntries(run.outputs.map(({ path, kind, size_bytes }) => [path, [kind, size_bytes]]));
    expect(bySize).toEqual({
      'out/r.json': ['file', 2],
      'out/stdin.txt': ['file', 5],
      '.fuse/stdout.log': ['log', 6],
      '.fuse/stderr.log': ['log', 5],
    });
    const download = await fetch(run.outputs.find(({ path }) => path === 'out/stdin.txt')?.url ?? '');
    expect(await download.text()).toBe('typed');
    expect(await get(system.call, run.id)).toEqual(run);
    const events = await eventsOf(system.call, run.id);
    expect(statesIn(events)).toEqual(['queued', 'starting', 'running', 'saving', 'succeeded']);
    expect(bytesIn(events, 'stdout').toString()).toBe('hello\n');
    expect(bytesIn(events, 'stderr').toString()).toBe('warn\n');
  });

  it('fails with a result, and no error, when the command ends with another code than 0', async () => {
    const run = await runToEnd(system.call, { shell: 'echo done > r.txt; exit 3', outputs: ['r.txt'] });
    expect(run).toMatchObject({ state: 'failed', exit_code: 3 });
    expect(run.error).toBeUndefined();
    expect(run.outputs.map(({ path }) => path)).toContain('r.txt');
  });

  it('times out with the output up to then, and the outputs', async () => {
    const run = await runToEnd(system.call, {
      shell: 'echo early; echo x > r.txt; sleep 60',
      outputs: ['r.txt'],
      limits: { timeout_ms: 300 },
    });
    expect(run).toMatchObject({ state: 'timed_out', stdout: 'early\n', exit_code: 137 });
    expect(run.error).toBeUndefined();
    expect(run.outputs.map(({ path }) => path)).toContain('r.txt');
  });

  it('gives the head of long streams, says so, and keeps the whole of them as a log', async () => {
    const run = await runToEnd(system.call, { shell: 'head -c 300000 /dev/zero | tr "\\0" a', encoding: 'base64' });
    expect(run).toMatchObject({ state: 'succeeded', truncated: true, stdout_bytes: 300_000 });
    expect(Buffer.from(run.stdout ?? '', 'base64').length).toBe(262_144);
    expect(run.outputs.find(({ path }) => path === '.fuse/stdout.log')?.size_bytes).toBe(300_000);
    const events = await eventsOf(system.call, run.id);
    // Over the log's bound of 100 000 bytes: what is missing is told.
    expect(events.some(({ data }) => data.event === 'truncated')).toBe(true);
    expect(bytesIn(events, 'stdout').length).toBeLessThanOrEqual(100_000);
    expect(statesIn(events).at(-1)).toBe('succeeded');
  });

  it('keeps bytes that are no text', async () => {
    const run = await runToEnd(system.call, { shell: 'printf "a\\377b"' });
    expect(run).toMatchObject({ stdout: 'a\ufffdb', lossy: true });
    const exact = await runToEnd(system.call, { shell: 'printf "a\\377b"', encoding: 'base64' });
    expect(exact.stdout).toBe(Buffer.from([0x61, 0xff, 0x62]).toString('base64'));
    expect(exact.lossy).toBeUndefined();
  });

  it('fails with exec_failed when there is no such program', async () => {
    const run = await runToEnd(system.call, { cmd: ['no-such-program'] });
    expect(run).toMatchObject({ state: 'failed', error: { code: 'exec_failed' }, outputs: [] });
    expect(run.error?.message).toContain('no-such-program');
    expect(run.exit_code).toBeUndefined();
    expect(statesIn(await eventsOf(system.call, run.id)).at(-1)).toBe('failed');
  });

  it('fails with start_failed, and the reason, when no VM can be started', async () => {
    system.host.before = ({ method, path }) => {
      if (method === 'PUT' && /^\/v1\/vms\/[^/]+$/.test(path)) throw new AppError('unavailable', 'the disk is full');
    };
    const run = await runToEnd(system.call, { cmd: ['true'] });
    expect(run).toMatchObject({ state: 'failed', error: { code: 'start_failed' } });
    expect(run.error?.message).toContain('the disk is full');
    expect(statesIn(await eventsOf(system.call, run.id))).toEqual(['queued', 'starting', 'failed']);
  });

  it('fails with input_failed when a file cannot be written', async () => {
    system.host.before = ({ method, path }) => {
      if (method === 'PUT' && path.endsWith('/files'))
        throw new AppError('invalid_argument', 'no space left in the guest');
    };
    const run = await runToEnd(system.call, { cmd: ['true'], files: [{ path: 'a', content: '' }] });
    expect(run).toMatchObject({
      state: 'failed',
      error: { code: 'input_failed', message: 'no space left in the guest' },
    });
  });

  it('ends as vm_lost when the VM dies, with what it had printed, and is not run again', async () => {
    const created = await create(system.call, { shell: 'echo before; sleep 60' });
    await untilState(system.call, created.id, 'running');
    const vmId = [...system.host.vms.keys()][0] ?? '';
    const vm = system.host.vms.get(vmId);
    while ([...(vm?.execs.values() ?? [])].every((exec) => exec.stdout.length === 0))
      await new Promise((resolve) => setTimeout(resolve, 5));
    system.host.killVm(vmId);
    const run = await untilEnded(system.call, created.id);
    expect(run).toMatchObject({ state: 'failed', error: { code: 'vm_lost' }, stdout: 'before\n' });
    expect(run.exit_code).toBeUndefined();
    expect(run.error?.message).toContain('SIGKILL');
    const events = await eventsOf(system.call, run.id);
    expect(bytesIn(events, 'stdout').toString()).toBe('before\n');
    expect(statesIn(events)).toEqual(['queued', 'starting', 'running', 'failed']);
    expect(system.host.started.get(`${run.id}-exec`)).toBe(1);
  });

  it('keeps its result, and fails with save_failed, when the VM dies before its outputs are saved', async () => {
    let vmId = '';
    system.host.before = ({ method, path }) => {
      const outputs = /^\/v1\/vms\/([^/]+)\/outputs$/.exec(path);
      if (method === 'POST' && outputs?.[1] !== undefined && vmId === '') {
        vmId = outputs[1];
        system.host.killVm(vmId);
      }
    };
    const run = await runToEnd(system.call, { shell: 'echo out; exit 4', outputs: ['*'] });
    expect(run).toMatchObject({ state: 'failed', exit_code: 4, stdout: 'out\n', error: { code: 'save_failed' } });
    expect(run.outputs.map(({ path }) => path)).toContain('.fuse/stdout.log');
    expect(bytesIn(await eventsOf(system.call, run.id), 'stdout').toString()).toBe('out\n');
  });

  it('goes on when the host agent is away for a moment', async () => {
    const created = await create(system.call, { shell: 'echo one; sleep 0.5; echo two' });
    await untilState(system.call, created.id, 'running');
    await system.host.stop();
    await new Promise((resolve) => setTimeout(resolve, 700));
    await system.host.listen();
    const run = await untilEnded(system.call, created.id);
    expect(run).toMatchObject({ state: 'succeeded', stdout: 'one\ntwo\n' });
    expect(system.host.started.get(`${run.id}-exec`)).toBe(1);
  });

  it('ends as host_lost when the host stays away', async () => {
    const created = await create(system.call, { shell: 'sleep 60' });
    await untilState(system.call, created.id, 'running');
    await system.host.stop();
    const run = await untilEnded(system.call, created.id);
    expect(run).toMatchObject({ state: 'failed', error: { code: 'host_lost' } });
    await system.host.listen();
  });

  describe('cancelled', () => {
    const cancel = (id: string) => system.call('POST', `/v1/runs/${id}?action=cancel`);

    it('while it starts: the command never runs', async () => {
      const { held, release } = holdCalls('PUT', /^\/v1\/vms\/[^/]+$/);
      const created = await create(system.call, { cmd: ['true'] });
      await held;
      expect((await cancel(created.id)).status).toBe(200);
      const run = await untilEnded(system.call, created.id);
      release();
      expect(run.state).toBe('cancelled');
      expect(statesIn(await eventsOf(system.call, run.id))).toEqual(['queued', 'starting', 'cancelled']);
      expect(system.host.started.has(`${run.id}-exec`)).toBe(false);
    });

    it('while it runs: with what it printed, without outputs', async () => {
      const created = await create(system.call, { shell: 'echo early; echo x > r.txt; sleep 60', outputs: ['*'] });
      await untilState(system.call, created.id, 'running');
      for (;;) {
        const [vm] = system.host.vms.values();
        if (vm !== undefined && [...vm.execs.values()].some((exec) => exec.stdout.length > 0)) break;
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      expect((await cancel(created.id)).body).toMatchObject({ id: created.id });
      const run = await untilEnded(system.call, created.id);
      expect(run).toMatchObject({ state: 'cancelled', stdout: 'early\n' });
      expect(run.error).toBeUndefined();
      expect(run.outputs.map(({ path }) => path)).not.toContain('r.txt');
      expect(statesIn(await eventsOf(system.call, run.id)).at(-1)).toBe('cancelled');
      expect((await cancel(run.id)).body).toMatchObject({ state: 'cancelled' });
    });

    it('while it saves: with its result, without outputs', async () => {
      const { held, release } = holdCalls('POST', /\/outputs$/);
      const created = await create(system.call, { shell: 'echo x > r.txt; echo out', outputs: ['*'] });
      await held;
      await untilState(system.call, created.id, 'saving');
      expect((await cancel(created.id)).body).toMatchObject({ state: 'saving' });
      release();
      const run = await untilEnded(system.call, created.id);
      expect(run).toMatchObject({ state: 'cancelled', exit_code: 0, stdout: 'out\n' });
      expect(run.outputs.map(({ path }) => path)).not.toContain('r.txt');
    });

    it('never, once it ended otherwise', async () => {
      const run = await runToEnd(system.call, { cmd: ['true'] });
      const answer = await cancel(run.id);
      expect(answer.status).toBe(409);
      expect(answer.body.error).toMatchObject({ code: 'conflict', details: { state: 'succeeded' } });
      expect((await get(system.call, run.id)).state).toBe('succeeded');
    });

    it('never, when it does not exist', async () => {
      expect((await cancel('run-nothing')).status).toBe(404);
    });
  });
});
