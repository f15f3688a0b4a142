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

  it.each(Array.from({ length: 60 }, (_, i) => [checkpoints[i % 8]!, i] as const))('late %s %d', async (at, n) => {
    const L = (m: string) => process.stderr.write(`${n} ${at} ${m} ${Math.round(performance.now())}\n`);
    const counter = `${directory.path}/late-${at.replaceAll(' ', '-')}-${n}`;
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
    L('another');
    const { id } = await create(
      callerOf(() => late.url),
      request(counter),
    );
    L('created');
    await standing;
    L('standing');
    await using db = await openDatabase(system.location, quiet);
    // As after a long sleep: the lease ran out and somebody else has taken the run.
    await db.query.updateTable('runs').set({ lease_owner: null, lease_until: null }).where('id', '=', id).execute();
    L('lease gone');
    const run = await untilEnded(system.call, id);
    L('ended');
    expectWhole(run);
    await untilEmpty(system);
    L('empty');
    const before = await db.query.selectFrom('runs').selectAll().where('id', '=', id).executeTakeFirstOrThrow();
    const objects = (await eventsOf(system.call, id)).length;
    for (const release of releases.splice(0)) release();
    L('released');
    await late[Symbol.asyncDispose]();
    L('disposed');
    expect(await db.query.selectFrom('runs').selectAll().where('id', '=', id).executeTakeFirstOrThrow()).toEqual(
      before,
    );
    expect((await eventsOf(system.call, id)).length).toBe(objects);
    expect(await ranTimes(counter)).toBe(1);
  });
});
