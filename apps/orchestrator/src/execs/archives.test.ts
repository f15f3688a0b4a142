/** Execs of environments that are gone: how they got there, who reads them, and when they go. */
import { ListExecs } from '@fuse/contract';
import { openObjectStore } from '@fuse/object-store';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { engines } from '../db/test-database.ts';
import { until } from '../runs/run-testing.ts';
import { startTestOrchestrator, type TestOrchestrator } from '../test-orchestrator.ts';
import { defaultExecConfig } from './exec-config.ts';
import { dataOf, linesOf, readStream } from './exec-testing.ts';

/** Of the whole file: what a test looks at must be read within it. */
const RETENTION_MS = 10_000;

describe.each(engines)('execs of environments that are gone, on %s', (engine) => {
  let test: TestOrchestrator;
  beforeAll(async () => {
    const execs = { ...defaultExecConfig, retentionMs: RETENTION_MS, collectEveryMs: 50 };
    test = await startTestOrchestrator(engine, { config: { execs } });
  }, 60_000);
  afterAll(() => test[Symbol.asyncDispose]());
  afterEach(() => {
    test.host.after = () => {};
    test.host.failArchives = false;
  });

  const create = async (task_id: string): Promise<string> => {
    const answer = await test.call('POST', '/v1/environments', { task_id });
    expect(answer.status).toBe(201);
    return `/v1/environments/${answer.body.id}`;
  };
  const exec = (path: string, id: string, shell: string) => test.call('POST', `${path}?action=exec`, { id, shell });
  const start = (path: string, id: string, shell: string) => test.call('POST', `${path}/execs`, { id, shell });
  const destroy = async (path: string) => expect((await test.call('DELETE', path)).status).toBe(204);
  const get = (path: string) => test.call('GET', path);
  const archives = async (): Promise<string[]> => {
    await using store = await openObjectStore(test.config.objectStore);
    const keys = [];
    for await (const { key } of store.list('execs')) keys.push(key);
    return keys;
  };
  const vmOf = (execId: string) => [...test.host.vms.values()].find(({ execs }) => execs.has(execId))?.vm.id ?? '';

  it('are read by their ids: state, result, log; what still ran is lost', async () => {
    const path = await create('gone');
    await exec(path, 'done', 'echo out; echo err >&2; exit 5');
    await start(path, 'running', 'echo so far; sleep 60');
    await until(
      async () => (await get(`${path}/execs/running`)).body.log_end,
      (end) => end > 0,
    );
    const before = (await get(`${path}/execs/done`)).body;
    const result = (await get(`${path}/execs/done/result`)).body;
    const log = (await readStream(test, `${path}/execs/done/log`)).bytes;
    await destroy(path);
    expect((await get(path)).status).toBe(404);
    expect((await get(`${path}/execs/done`)).body).toEqual(before);
    expect((await get(`${path}/execs/done?wait_ms=1000`)).body).toEqual(before);
    expect((await get(`${path}/execs/done/result`)).body).toEqual(result);
    const after = await readStream(test, `${path}/execs/done/log?follow=1`);
    expect(after).toMatchObject({ isWhole: true });
    expect(after.bytes).toEqual(log);
    const offset = 8 + 4;
    expect(linesOf((await readStream(test, `${path}/execs/done/log?offset=${offset}`)).bytes)).toHaveLength(2);
    expect((await get(`${path}/execs/done/log?offset=3`)).status).toBe(400);
    expect((await get(`${path}/execs/done/log?offset=99999`)).status).toBe(400);

    expect((await get(`${path}/execs/running`)).body).toMatchObject({ state: 'lost', error: expect.any(String) });
    expect(await get(`${path}/execs/running/result`)).toMatchObject({
      status: 502,
      body: { error: { code: 'vm_lost' } },
    });
    const lost = await readStream(test, `${path}/execs/running/log?follow=1`);
    expect(linesOf(lost.bytes)).toMatchObject([{ data: 'so far\n' }, { lost: expect.any(String) }]);
    expect((await readStream(test, `${path}/execs/running/log?stream=text`)).isWhole).toBe(false);
    const { execs } = ListExecs.parse((await get(`${path}/execs`)).body);
    expect(execs.map(({ id }) => id)).toEqual(['running', 'done']);
    expect((await get(`${path}/execs/none`)).status).toBe(404);
    // Everything else needs it to be there.
    for (const [method, rest] of [
      ['POST', '/execs/done/signal'],
      ['DELETE', '/execs/done'],
      ['GET', '/processes'],
    ] as const)
      expect((await test.call(method, `${path}${rest}`)).status).toBe(404);
  });

  it('are those of the newest that has them, also beside a live one of the same id', async () => {
    for (const word of ['first', 'second']) {
      const path = await create('again');
      await exec(path, 'each', `echo ${word}`);
      await exec(path, word, `echo only in ${word}`);
      await destroy(path);
    }
    const path = await create('again');
    expect((await get(`${path}/execs`)).body).toEqual({ execs: [] });
    expect((await get(`${path}/execs/each/result`)).body).toMatchObject({ stdout: 'second\n' });
    expect((await get(`${path}/execs/first/result`)).body).toMatchObject({ stdout: 'only in first\n' });
    await exec(path, 'each', 'echo third');
    expect((await get(`${path}/execs/each/result`)).body).toMatchObject({ stdout: 'third\n' });
    await destroy(path);
    expect((await get(`${path}/execs/each/result`)).body).toMatchObject({ stdout: 'third\n' });
    expect((await get(`${path}/execs`)).body.execs).toHaveLength(1);
  });

  it('are kept when the VM died, before and after what is left of it was deleted', async () => {
    const path = await create('died');
    await exec(path, 'done', 'echo kept');
    await start(path, 'cut', 'echo partly; sleep 60');
    await until(
      async () => (await get(`${path}/execs/cut`)).body.log_end,
      (end) => end > 0,
    );
    test.host.killVm(vmOf('done'));
    await until(
      () => get(path),
      ({ status }) => status === 404,
    );
    for (let look = 0; look < 20; look += 1) {
      expect((await get(`${path}/execs/done/result`)).body).toMatchObject({ stdout: 'kept\n' });
      expect((await get(`${path}/execs/cut`)).body).toMatchObject({ state: 'lost' });
    }
    await until(
      () => test.host.vms.size,
      (size) => size === 0,
    );
    expect((await get(`${path}/execs/done/result`)).body).toMatchObject({ stdout: 'kept\n' });
    const { bytes } = await readStream(test, `${path}/execs/cut/log`);
    expect(dataOf(linesOf(bytes), 'stdout').toString()).toBe('partly\n');
  });

  it('are there when the answer of the destruction was lost', async () => {
    const path = await create('cut-answer');
    await exec(path, 'done', 'echo kept');
    let cuts = 0;
    test.host.after = ({ method }, response) => {
      if (method === 'DELETE' && ++cuts === 1) response.destroy();
    };
    await destroy(path);
    expect(cuts).toBe(2);
    expect((await get(`${path}/execs/done/result`)).body).toMatchObject({ stdout: 'kept\n' });
  });

  it('are not kept when the store is away, and the destruction succeeds all the same', async () => {
    const path = await create('unkept');
    await exec(path, 'done', 'echo lost');
    test.host.failArchives = true;
    await destroy(path);
    expect((await get(`${path}/execs/done`)).status).toBe(404);
    expect((await get(`${path}/execs`)).body).toEqual({ execs: [] });
  });

  it('are not kept of runs, which keep their own', async () => {
    const before = await archives();
    const run = await test.call('POST', '/v1/runs', { shell: 'echo x', wait: true });
    expect(run.status).toBe(200);
    await until(
      () => test.host.vms.size,
      (size) => size === 0,
    );
    expect((await archives()).filter((key) => !before.includes(key))).toEqual([]);
  });

  it('are forgotten with their object when their time is up, and only then', async () => {
    const path = await create('forgotten');
    await exec(path, 'done', 'echo x');
    await destroy(path);
    expect((await archives()).length).toBeGreaterThan(0);
    expect((await get(`${path}/execs/done`)).status).toBe(200);
    await until(
      () => archives(),
      (keys) => keys.length === 0,
      2 * RETENTION_MS,
    );
    expect((await get(`${path}/execs/done`)).status).toBe(404);
    expect((await get(`${path}/execs`)).body).toEqual({ execs: [] });
  });
});
