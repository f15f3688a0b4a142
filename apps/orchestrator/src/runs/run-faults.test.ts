import { type Run, terminalRunStates } from '@fuse/contract';
import { sleep } from '@fuse/runtime';
import { startS3Server } from '@fuse/testing';
import { sql } from 'kysely';
import { describe, expect, it } from 'vitest';
import { openDatabase } from '../db/open.ts';
import { engines, quiet } from '../db/test-database.ts';
import { startTestOrchestrator } from '../test-orchestrator.ts';
import { bytesIn, create, eventsOf, get, runToEnd, statesIn, until, untilEmpty, untilEnded } from './run-testing.ts';

describe.each(engines)('on %s', (engine) => {
  it('runs that are cancelled at any moment end, and leave nothing', async () => {
    await using system = await startTestOrchestrator(engine, { host: { capacity: { cpus: 6 } } });
    const one = async (n: number): Promise<Run> => {
      const { id } = await create(system.call, { shell: 'echo x; sleep 0.1', outputs: ['*'] });
      await sleep((n * 37) % 400);
      const answer = await system.call('POST', `/v1/runs/${id}?action=cancel`);
      expect([200, 409]).toContain(answer.status);
      return untilEnded(system.call, id);
    };
    const runs: Run[] = [];
    for (let batch = 0; batch < 4; batch += 1)
      runs.push(...(await Promise.all(Array.from({ length: 15 }, (_, n) => one(batch * 15 + n)))));
    for (const run of runs) {
      expect(['cancelled', 'succeeded']).toContain(run.state);
      expect(system.host.started.get(`${run.id}-exec`) ?? 0).toBeLessThanOrEqual(1);
      const states = statesIn(await eventsOf(system.call, run.id));
      expect(states.filter((state) => terminalRunStates.some((terminal) => terminal === state))).toEqual([run.state]);
    }
    await untilEmpty(system);
    expect((await runToEnd(system.call, { cmd: ['true'] })).state).toBe('succeeded');
    await untilEmpty(system);
  }, 120_000);
});

describe('on postgres', () => {
  it('runs outlive the loss of every database connection, again and again', async () => {
    await using system = await startTestOrchestrator('postgres');
    await using db = await openDatabase(system.location, quiet);
    const cut = () =>
      sql`select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`.execute(
        db.query,
      );
    const created = await Promise.all(
      Array.from({ length: 5 }, (_, n) => create(system.call, { shell: `sleep 0.${n + 1}; echo ${n}; sleep 0.3` })),
    );
    for (let times = 0; times < 6; times += 1) {
      await sleep(120);
      await cut();
    }
    for (const [n, { id }] of created.entries()) {
      const run = await until(
        () => get(system.call, id),
        (seen) => seen.finished_at !== undefined,
        30_000,
      );
      expect(run).toMatchObject({ state: 'succeeded', stdout: `${n}\n` });
      expect(system.host.started.get(`${id}-exec`)).toBe(1);
      expect(bytesIn(await eventsOf(system.call, id), 'stdout').toString()).toBe(`${n}\n`);
    }
    await untilEmpty(system);
  }, 60_000);

  it('outputs in S3 are downloaded from there, by a URL of its own', async () => {
    await using server = await startS3Server();
    await using system = await startTestOrchestrator('postgres', { config: { objectStore: server.config } });
    const upload = await system.call('POST', '/v1/files', 'from an upload\n');
    const run = await runToEnd(system.call, {
      shell: 'cat a b > c.txt; echo log',
      files: [
        { path: 'a', content: 'inline\n' },
        { path: 'b', file_id: upload.body.id },
      ],
      outputs: ['c.txt'],
    });
    expect(run.state).toBe('succeeded');
    const output = run.outputs.find(({ path }) => path === 'c.txt');
    expect(output?.url).toContain(server.config.endpoint);
    expect(Date.parse(output?.url_expires_at ?? '') - Date.now()).toBeLessThanOrEqual(3_600_000);
    const response = await fetch(output?.url ?? '');
    expect(response.headers.get('content-disposition')).toContain('attachment; filename="c.txt"');
    expect(await response.text()).toBe('inline\nfrom an upload\n');
    const forged = output?.url.replace(/Signature=(.)/, (_, digit) => `Signature=${digit === '0' ? '1' : '0'}`) ?? '';
    expect((await fetch(forged)).status).toBe(403);
    const proxied = await system.call('GET', `/v1/runs/${run.id}/outputs/c.txt`, undefined, {
      headers: { range: 'bytes=0-5' },
    });
    expect([proxied.status, proxied.body]).toEqual([206, 'inline']);
    expect(bytesIn(await eventsOf(system.call, run.id), 'stdout').toString()).toBe('log\n');
    await untilEmpty(system);
  }, 60_000);
});
