import { writeFile } from 'node:fs/promises';
import type { Run } from '@fuse/contract';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openDatabase } from '../db/open.ts';
import { quiet } from '../db/test-database.ts';
import { tenantWith } from '../quotas/quota-testing.ts';
import { startTestOrchestrator, type TestOrchestrator } from '../test-orchestrator.ts';
import { runToEnd, untilEmpty } from './run-testing.ts';

describe('outputs of a run', () => {
  let system: TestOrchestrator;
  let run: Run;
  const url = (path: string) => run.outputs.find((output) => output.path === path)?.url ?? '';
  beforeAll(async () => {
    system = await startTestOrchestrator('postgres');
    run = await runToEnd(system.call, {
      shell: 'printf 0123456789 > d.txt; mkdir -p "a b"; echo "<script>" > "a b/ü \\"q\\".html"; : > empty',
      outputs: ['**/*'],
    });
  }, 60_000);
  afterAll(async () => {
    await untilEmpty(system);
    await system[Symbol.asyncDispose]();
  });
  const get = (path: string, headers: Record<string, string> = {}) =>
    system.call('GET', `/v1/runs/${run.id}/outputs/${path}`, undefined, { headers });

  it('are listed', async () => {
    const answer = await system.call('GET', `/v1/runs/${run.id}/outputs`);
    expect(answer.body).toEqual({ outputs: run.outputs });
  });

  it('come with what a browser needs to be safe', async () => {
    const answer = await get(encodeURI('a b/ü "q".html'));
    expect(answer.status).toBe(200);
    expect(answer.body).toBe('<script>\n');
    expect(Object.fromEntries(answer.headers)).toMatchObject({
      'content-type': 'text/html; charset=utf-8',
      'content-length': '9',
      'content-disposition': `attachment; filename="_ _q_.html"; filename*=UTF-8''%C3%BC%20%22q%22.html`,
      'x-content-type-options': 'nosniff',
      'content-security-policy': "default-src 'none'; sandbox",
      'accept-ranges': 'bytes',
    });
  });

  it('are found by the sum of their bytes', async () => {
    const first = await get('d.txt');
    const etag = first.headers.get('etag') ?? '';
    expect(etag).toBe(`"${run.outputs.find(({ path }) => path === 'd.txt')?.sha256}"`);
    const again = await get('d.txt', { 'if-none-match': `W/"other", ${etag}` });
    expect(again.status).toBe(304);
    expect(again.body).toBe('');
  });

  it.each([
    ['bytes=0-3', 206, '0123', 'bytes 0-3/10'],
    ['bytes=7-', 206, '789', 'bytes 7-9/10'],
    ['bytes=-2', 206, '89', 'bytes 8-9/10'],
    ['bytes=0-99', 206, '0123456789', 'bytes 0-9/10'],
    ['bytes=0-1,4-5', 200, '0123456789', null],
  ])('are given in part: %s', async (range, status, body, contentRange) => {
    const answer = await get('d.txt', { range });
    expect(answer.status).toBe(status);
    expect(answer.body).toBe(body);
    expect(answer.headers.get('content-range')).toBe(contentRange);
    expect(answer.headers.get('content-length')).toBe(String(body.length));
  });

  it('are given whole when the part is of other bytes, and refused beyond the end', async () => {
    expect((await get('d.txt', { range: 'bytes=0-1', 'if-range': '"other"' })).status).toBe(200);
    const beyond = await get('d.txt', { range: 'bytes=10-' });
    expect(beyond.status).toBe(416);
    expect(beyond.headers.get('content-range')).toBe('bytes */10');
  });

  it('may be empty', async () => {
    const answer = await get('empty');
    expect(answer.status).toBe(200);
    expect(answer.body).toBe('');
    expect((await fetch(url('empty'))).status).toBe(200);
  });

  it('are not what was not saved', async () => {
    for (const path of ['nothing', '', '..%2f..%2fetc%2fpasswd', 'd.txt/', '%00'])
      expect((await get(path)).status).toBeGreaterThanOrEqual(400);
  });

  it('are downloaded without credentials by their URL, and by nothing else', async () => {
    const response = await fetch(url('d.txt'));
    expect(response.status).toBe(200);
    expect(await response.text()).toBe('0123456789');
    const part = await fetch(url('d.txt'), { headers: { range: 'bytes=2-3' } });
    expect(await part.text()).toBe('23');
    const tampered = [
      url('d.txt').replace(/signature=./, (text) => `${text.slice(0, -1)}${text.endsWith('0') ? '1' : '0'}`),
      url('d.txt').replace(/expires=\d/, 'expires=9'),
      url('d.txt').replace(/\/(\d)\?/, (_, digit) => `/${Number(digit) + 1}?`),
      url('d.txt').replace(run.id, 'run-other'),
      url('d.txt').replace(/&signature=.*/, ''),
      url('d.txt').replace(/\?.*/, ''),
      url('d.txt').replace(/signature=/, 'signature=00&signature='),
    ];
    for (const each of tampered.slice(0, 6)) expect((await fetch(each)).status, each).toBe(403);
  });

  it('are no more when their tenant is disabled, nor when it is gone', async () => {
    const { id, call } = await tenantWith(system.call, {});
    const { outputs } = await runToEnd(call, { shell: 'echo mine > m.txt', outputs: ['m.txt'] });
    const status = async () => (await fetch(outputs[0]?.url ?? '')).status;
    expect(await status()).toBe(200);
    await system.call('PATCH', `/v1/tenants/${id}`, { disabled: true });
    expect(await status()).toBe(403);
    await system.call('PATCH', `/v1/tenants/${id}`, { disabled: false });
    expect(await status()).toBe(200);
    expect((await system.call('DELETE', `/v1/tenants/${id}`)).status).toBe(204);
    expect([403, 404]).toContain(await status());
  });

  it('are never handed out damaged', async () => {
    for (const size of [10, 3_000_000]) {
      const damaged = await runToEnd(system.call, { shell: `head -c ${size} /dev/zero > z`, outputs: ['z'] });
      const { objectStore } = system.config;
      if (objectStore.kind !== 'file') throw new Error('the test damages a file');
      const [row] = await keysOf(damaged.id);
      await writeFile(`${objectStore.directory}/objects/${row?.object_key}`, 'x', { flag: 'r+' });
      const got = await fetch(damaged.outputs[0]?.url ?? '').then(
        async (response) => ({ status: response.status, text: await response.text().catch(() => undefined) }),
        () => undefined,
      );
      // Told, or cut before its end.
      if (got?.text !== undefined) {
        expect(got.status).toBe(500);
        expect(got.text).toContain('integrity_error');
      }
    }
  });

  async function keysOf(runId: string) {
    await using db = await openDatabase(system.location, quiet);
    return await db.query
      .selectFrom('run_outputs')
      .selectAll()
      .where('run_id', '=', runId)
      .orderBy('position')
      .execute();
  }
});

describe('a list of runs', () => {
  it('filters, pages newest first, and shows no streams', async () => {
    await using system = await startTestOrchestrator('postgres');
    const ids: string[] = [];
    for (let n = 0; n < 7; n += 1) {
      const run = await runToEnd(system.call, {
        shell: `echo ${n} > r; exit ${n % 2}`,
        outputs: ['r'],
        labels: { parity: n % 2 === 0 ? 'even' : 'odd', n: `n${n}` },
      });
      ids.unshift(run.id);
    }
    const list = async (query: string) => (await system.call('GET', `/v1/runs${query}`)).body;
    const all = await list('');
    expect(all.next_cursor).toBeUndefined();
    expect(all.runs.map(({ id }: Run) => id)).toEqual(ids);
    for (const run of all.runs as Run[]) {
      expect(run.stdout).toBeUndefined();
      expect(run.outputs.map(({ path }) => path)).toContain('r');
    }
    const paged: string[] = [];
    let cursor = '';
    do {
      const page = await list(`?limit=3${cursor}`);
      expect(page.runs.length).toBeLessThanOrEqual(3);
      paged.push(...page.runs.map(({ id }: Run) => id));
      cursor = page.next_cursor === undefined ? '' : `&cursor=${page.next_cursor}`;
    } while (cursor !== '');
    expect(paged).toEqual(ids);
    const found = async (query: string) => (await list(query)).runs.map(({ id }: Run) => id);
    expect(await found('?state=succeeded')).toEqual(ids.filter((_, index) => index % 2 === 0));
    expect(await found('?state=failed&label=parity=odd')).toEqual(ids.filter((_, index) => index % 2 === 1));
    expect(await found('?label=parity=even&label=n=n2')).toEqual([ids[4]]);
    expect(await found('?label=parity=even&label=n=n1')).toEqual([]);
    expect(await found('?image=base&limit=1')).toEqual([ids[0]]);
    expect(await found('?image=other')).toEqual([]);
    expect(await found('?state=nonsense')).toEqual([]);
    await untilEmpty(system);
  }, 60_000);
});
