import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { Run } from '@fuse/contract';
import { temporaryDirectory } from '@fuse/testing';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { openDatabase } from '../db/open.ts';
import { quiet } from '../db/test-database.ts';
import { callerOf, startTestOrchestrator, type TestOrchestrator } from '../test-orchestrator.ts';
import { type Checkpoint, checkpoints } from './driving/drive.ts';
import { defaultRunConfig } from './run-config.ts';
import { bytesIn, create, eventsOf, statesIn, untilEmpty, untilEnded } from './run-testing.ts';

const PROGRAM = fileURLToPath(new URL('../../dist/runs/crashing-orchestrator.js', import.meta.url));

describe('a run whose driver dies', () => {
  let system: TestOrchestrator;
  let directory: Awaited<ReturnType<typeof temporaryDirectory>>;
  const children: ChildProcess[] = [];
  const releases: (() => void)[] = [];
  const runs = { ...defaultRunConfig, leaseMs: 900 };

  beforeAll(async () => {
    directory = await temporaryDirectory();
    system = await startTestOrchestrator('postgres', { config: { runs } });
  }, 60_000);
  afterAll(async () => {
    await system[Symbol.asyncDispose]();
    await directory[Symbol.asyncDispose]();
  });
  afterEach(async () => {
    for (const child of children.splice(0)) child.kill('SIGKILL');
    for (const release of releases.splice(0)) release();
    await untilEmpty(system);
  });

  const ranTimes = async (counter: string): Promise<number> =>
    (await readFile(counter, 'utf8').catch(() => '')).split('\n').length - 1;

  const request = (counter: string) => ({
    shell: `cat in.txt; echo ran >> ${counter}; sleep 0.1; echo out; echo result > r.txt`,
    files: [{ path: 'in.txt', content: 'in\n' }],
    outputs: ['r.txt'],
  });

  /** Another process has the run, and stands still at that point. */
  async function stopAt(at: Checkpoint, body: object): Promise<{ id: string; child: ChildProcess }> {
    const child = spawn(process.execPath, [PROGRAM, JSON.stringify({ config: system.config, at })], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    children.push(child);
    const lines = createInterface({ input: child.stdout as NonNullable<typeof child.stdout> }); // it is a pipe
    const next = lines[Symbol.asyncIterator]();
    const url: string = (await next.next()).value;
    const { id } = await create(
      callerOf(() => url),
      body,
    );
    expect((await next.next()).value).toBe('stopped');
    return { id, child };
  }

  async function kill(child: ChildProcess): Promise<void> {
    const exited = once(child, 'exit');
    child.kill('SIGKILL');
    await exited;
  }

  function expectWhole(run: Run): void {
    expect(run).toMatchObject({ state: 'succeeded', exit_code: 0, stdout: 'in\nout\n' });
    const paths = run.outputs.map(({ path }) => path);
    expect(paths).toEqual([...new Set(paths)]);
    expect(paths).toEqual(expect.arrayContaining(['.fuse/stdout.log', 'r.txt']));
  }

  it.each(checkpoints)('is brought to its end by another process: killed at "%s"', async (at) => {
    const counter = `${directory.path}/${at.replaceAll(' ', '-')}`;
    const { id, child } = await stopAt(at, request(counter));
    await kill(child);
    const run = await untilEnded(system.call, id);
    expectWhole(run);
    expect(await ranTimes(counter)).toBe(1);
    const events = await eventsOf(system.call, id);
    expect(statesIn(events)).toEqual(['queued', 'starting', 'running', 'saving', 'succeeded']);
    expect(bytesIn(events, 'stdout').toString()).toBe('in\nout\n');
    await untilEmpty(system);
  });

  it.each(checkpoints.slice(1, 6))('is never run twice: driver and VM killed at "%s"', async (at) => {
    const counter = `${directory.path}/lost-${at.replaceAll(' ', '-')}`;
    const { id, child } = await stopAt(at, { ...request(counter), outputs: [] });
    await kill(child);
    for (const vmId of system.host.vms.keys()) system.host.killVm(vmId);
    const run = await untilEnded(system.call, id);
    expect(await ranTimes(counter)).toBeLessThanOrEqual(1);
    const expected: Partial<Record<Checkpoint, string>> = { 'vm started': 'start_failed', 'files put': 'start_failed' };
    if (at === 'exec ended') expectEndedBefore(run);
    else expect(run).toMatchObject({ state: 'failed', error: { code: expected[at] ?? 'vm_lost' } });
  });

  /** The command had ended, and the host knows how, before the VM died. */
  function expectEndedBefore(run: Run): void {
    expect(run, JSON.stringify(run)).toMatchObject({ state: 'succeeded', exit_code: 0, stdout: 'in\nout\n' });
  }

  it.each(checkpoints.slice(0, -1))('is left alone by a driver that lost it and wakes up late, at "%s"', async (at) => {
    const counter = `${directory.path}/late-${at.replaceAll(' ', '-')}`;
    const released = new Promise<void>((resolve) => releases.push(resolve));
    let stopped: () => void = () => {};
    const standing = new Promise<void>((resolve) => {
      stopped = resolve;
    });
    // One slot, taken by the driver that stands still: it cannot take the run over itself.
    const late = await system.another(
      { listen: { host: '127.0.0.1', port: 0 }, runs: { ...runs, maxRuns: 1 } },
      {
        checkpoint: async (point) => {
          if (point !== at) return;
          stopped();
          await released;
        },
      },
    );
    const { id } = await create(
      callerOf(() => late.url),
      request(counter),
    );
    await standing;
    await using db = await openDatabase(system.location, quiet);
    // As after a long sleep: the lease ran out and somebody else has taken the run.
    await db.query.updateTable('runs').set({ lease_owner: null, lease_until: null }).where('id', '=', id).execute();
    const run = await untilEnded(system.call, id);
    expectWhole(run);
    await untilEmpty(system);
    const before = await db.query.selectFrom('runs').selectAll().where('id', '=', id).executeTakeFirstOrThrow();
    const objects = (await eventsOf(system.call, id)).length;
    for (const release of releases.splice(0)) release();
    await late[Symbol.asyncDispose]();
    expect(await db.query.selectFrom('runs').selectAll().where('id', '=', id).executeTakeFirstOrThrow()).toEqual(
      before,
    );
    expect((await eventsOf(system.call, id)).length).toBe(objects);
    expect(await ranTimes(counter)).toBe(1);
  });

  it('is cancelled by whoever takes it over', async () => {
    const { id, child } = await stopAt('exec started', { shell: 'echo x; sleep 60' });
    expect((await system.call('POST', `/v1/runs/${id}?action=cancel`)).status).toBe(200);
    await kill(child);
    expect(await untilEnded(system.call, id)).toMatchObject({ state: 'cancelled', stdout: 'x\n' });
  });

  it('is handed over by a process that stops in good order, with the command running on', async () => {
    const counter = `${directory.path}/handed-over`;
    const first = await system.another({ listen: { host: '127.0.0.1', port: 0 } });
    const body = {
      ...request(counter),
      shell: `cat in.txt; echo ran >> ${counter}; sleep 1; echo out; echo result > r.txt`,
    };
    const { id } = await create(
      callerOf(() => first.url),
      body,
    );
    while ((await ranTimes(counter)) === 0) await new Promise((resolve) => setTimeout(resolve, 10));
    await first[Symbol.asyncDispose]();
    expectWhole(await untilEnded(system.call, id));
    expect(await ranTimes(counter)).toBe(1);
  });
});
