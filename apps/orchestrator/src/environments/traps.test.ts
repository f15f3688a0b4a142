/** What clients of the published API rely on without saying so: api.md section 9, each by its number. Of environments, and of what every list and answer has in common. */
import { pageLimit } from '@fuse/contract';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type Answer, startTestOrchestrator, TEST_TOKEN, type TestOrchestrator } from '../test-orchestrator.ts';

let test: TestOrchestrator;
let call: TestOrchestrator['call'];
let number = 0;
const newTask = () => `trap-${++number}`;

beforeAll(async () => {
  test = await startTestOrchestrator('postgres');
  call = test.call;
}, 60_000);
afterAll(() => test[Symbol.asyncDispose]());
afterEach(async () => {
  test.host.before = () => {};
  const { body } = await call('GET', '/v1/environments');
  for (const { id } of body.environments) await call('DELETE', `/v1/environments/${id}`);
});

const create = async (body: object = {}) => {
  const answer = await call('POST', '/v1/environments', { task_id: newTask(), ...body });
  expect(answer).toMatchObject({ status: 201 });
  return answer.body;
};
const act = (id: string, action: string, body?: unknown) =>
  call('POST', `/v1/environments/${id}?action=${action}`, body);
/** As clients send what has no body: no Content-Type, `Content-Length: 0` or nothing at all. */
const bare = (path: string) => call('POST', path);
const keyOf = async (body?: object): Promise<string> => (await call('POST', '/v1/api-keys', body)).body.key;

/** One answer of every kind there is, of things that have all there is to them, and of lists without any. */
async function everyAnswer(): Promise<Answer[]> {
  const full = await create({
    labels: { a: 'b' },
    expose: [{ port: 8080, as: 'web' }, { port: 9090 }],
    healthcheck: { exec: ['true'] },
    spec: { idle_timeout_seconds: 60, region: '', labels: {} },
    checkpoint_interval_seconds: 3_600,
  });
  const plain = await create();
  const taken = await call('POST', `/v1/environments/${full.id}/snapshots`, { name: 'n', retention_seconds: 60 });
  const answers = [
    taken,
    await act(full.id, 'fork', {}),
    await act(full.id, 'fork', { count: 2 }),
    await act(full.id, 'exec', { cmd: ['true'] }),
    await act(full.id, 'pause'),
    await act(full.id, 'resume'),
    await act(plain.id, 'drain'),
    await call('PATCH', `/v1/environments/${full.id}`, { labels: { c: 'd' } }),
    await call('GET', `/v1/environments/${full.id}/computer`),
    await call('POST', '/v1/api-keys', {}),
  ];
  for (const path of [
    `/v1/environments/${full.id}`,
    '/v1/environments',
    '/v1/environments?task_id=none',
    `/v1/environments/${full.id}/execs`,
    '/v1/snapshots',
    '/v1/snapshots?vm_id=none',
    `/v1/snapshots/${taken.body.id}`,
    '/v1/snapshots/resolve?layer_key=none&arch=amd64',
    '/v1/hosts',
    '/v1/hosts/host-1',
    '/v1/api-keys',
    '/v1/runs',
    '/v1/images',
    '/v1/usage',
    '/v1/version',
    '/ready',
  ])
    answers.push(await call('GET', path));
  for (const answer of answers) expect(answer.status, JSON.stringify(answer.body)).toBeLessThan(300);
  await call('DELETE', `/v1/snapshots/${taken.body.id}?force=true`);
  return answers;
}

/** Every value of an answer, by its key. */
function* values(of: unknown, key = ''): Generator<[string, unknown]> {
  yield [key, of];
  if (typeof of !== 'object' || of === null) return;
  for (const [name, value] of Object.entries(of)) yield* values(value, Array.isArray(of) ? key : name);
}

describe('traps', () => {
  it('1, 8, 9: nothing is null; times are RFC 3339 with a zone; numbers are whole', async () => {
    let times = 0;
    for (const { body } of await everyAnswer())
      for (const [key, value] of values(body)) {
        expect(value, key).not.toBeNull();
        expect(value, key).not.toBeUndefined();
        // Milliseconds that were measured, and sums of seconds: ours, which no published client reads.
        if (typeof value === 'number' && !/_ms$|^(vcpu|gib|stored_byte)_seconds$/.test(key))
          expect(Number.isInteger(value), `${key} ${value}`).toBe(true);
        if (!/(_at|_seen|since|until)$/.test(key)) continue;
        expect(value, key).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$/);
        times += 1;
      }
    expect(times).toBeGreaterThan(20);
  });

  it('2: lists are arrays, also empty ones, each under its own name', async () => {
    expect((await call('GET', '/v1/environments?task_id=none')).body).toEqual({ environments: [] });
    expect((await call('GET', '/v1/snapshots?task_id=none')).body).toEqual({ snapshots: [] });
    const behindAll = Buffer.from(JSON.stringify({ id: 'zzz' })).toString('base64url');
    expect((await call('GET', `/v1/hosts?cursor=${behindAll}`)).body).toEqual({ hosts: [] });
    expect((await call('GET', '/v1/api-keys')).body).toEqual({ api_keys: expect.any(Array) });
  });

  it('3: the last page has no next_cursor, and following it comes to an end', async () => {
    const made = [await create(), await create(), await create()];
    for (const limit of [1, 2, 3, 4]) {
      const seen: string[] = [];
      let cursor: string | undefined;
      let pages = 0;
      do {
        const { body } = await call('GET', `/v1/environments?limit=${limit}${cursor ? `&cursor=${cursor}` : ''}`);
        for (const { id } of body.environments) seen.push(id);
        cursor = body.next_cursor;
        if (cursor === undefined) expect(body).not.toHaveProperty('next_cursor');
        pages += 1;
      } while (cursor !== undefined && pages < 10);
      expect(seen).toEqual(made.map(({ id }) => id));
      expect(pages).toBe(Math.ceil(3 / limit));
    }
  });

  it('4: a limit is clamped, and never refused', async () => {
    await create();
    for (const limit of ['200', '201', '100000', '0', '-3', 'x', '2.5', '', '1e9', '99999999999999999999'])
      for (const list of ['environments', 'snapshots', 'hosts'])
        expect((await call('GET', `/v1/${list}?limit=${limit}`)).status, `${list} ${limit}`).toBe(200);
    expect(['200', '201', '0', '-3', 'x', '2.5', undefined].map(pageLimit)).toEqual([200, 200, 50, 50, 50, 50, 50]);
  });

  it('5, 6: an id is the prefix and the task_id; addresses are host:port without a scheme', async () => {
    const task_id = 'Some_Task.7';
    const made = await create({ task_id, expose: [{ port: 80 }] });
    expect(made.id).toBe(`fuse-${task_id}`);
    expect(made.url).toBe('');
    expect(made.endpoints[0].url).toMatch(/^[\w.:[\]]+:\d+(\/|$)/);
    expect(new URL(`http://${made.endpoints[0].url}`).pathname).toBe(`/v1/environments/${made.id}/ports/80/connect`);
  });

  it('7: what is always there is always there', async () => {
    const made = await create();
    const always = ['id', 'state', 'task_id', 'url', 'spec', 'created_at', 'updated_at'];
    for (const body of [made, (await act(made.id, 'drain')).body])
      for (const field of always) expect(body, field).toHaveProperty(field);
    const host = (await call('GET', '/v1/hosts/host-1')).body;
    for (const field of ['id', 'url', 'state', 'capacity', 'allocated', 'last_seen', 'created_at', 'updated_at'])
      expect(host, field).toHaveProperty(field);
    for (const amounts of [host.capacity, host.allocated])
      for (const field of ['cpus', 'ram_mb', 'storage_gb', 'vm_count'])
        expect(amounts[field], field).toEqual(expect.any(Number));
    const other = await create();
    const { body: snapshot } = await call('POST', `/v1/environments/${other.id}/snapshots`);
    for (const field of ['id', 'vm_id', 'created_at']) expect(snapshot, field).toHaveProperty(field);
    await call('DELETE', `/v1/snapshots/${snapshot.id}`);
  });

  it('9: numbers that are not whole are refused', async () => {
    for (const spec of [{ cpus: 2.5 }, { ram_mb: '512' }, { storage_gb: 1e-3 }, { max_runtime_seconds: 1.5 }])
      expect((await call('POST', '/v1/environments', { task_id: newTask(), spec })).status, JSON.stringify(spec)).toBe(
        400,
      );
  });

  it('10, 11: each verb has its status, and a drain and a fork their environment', async () => {
    const { id } = await create();
    const snapshot = await call('POST', `/v1/environments/${id}/snapshots`);
    expect(snapshot.status).toBe(201);
    const fork = await act(id, 'fork', {});
    expect(fork).toMatchObject({ status: 201, body: { id: expect.stringMatching(/^fuse-fork-/), state: 'running' } });
    const key = await call('POST', '/v1/api-keys', {});
    expect(key.status).toBe(201);
    expect((await act(id, 'exec', { cmd: ['true'] })).status).toBe(200);
    const empty: [string, string, unknown?][] = [
      ['POST', `/v1/environments/${id}?action=rotate-token`],
      ['POST', `/v1/snapshots/${snapshot.body.id}?action=restore`],
      ['POST', '/v1/hosts/host-1?action=cordon'],
      ['POST', '/v1/hosts/host-1?action=uncordon'],
      ['DELETE', `/v1/api-keys/${key.body.id}`],
      ['POST', '/login', { token: TEST_TOKEN }],
      ['POST', '/logout'],
    ];
    for (const [method, path, body] of empty)
      expect(await call(method, path, body), path).toMatchObject({ status: 204, body: '' });
    expect(await act(id, 'drain')).toMatchObject({ status: 200, body: { id, state: 'draining' } });
    expect(await call('DELETE', `/v1/environments/${id}`)).toMatchObject({ status: 204, body: '' });
    expect(await call('DELETE', `/v1/environments/${fork.body.id}`)).toMatchObject({ status: 204, body: '' });
    for (const { id: left } of (await call('GET', '/v1/snapshots')).body.snapshots)
      expect(await call('DELETE', `/v1/snapshots/${left}?force=true`)).toMatchObject({ status: 204, body: '' });
  });

  it('12: a create is answered when it runs, not before, and its events begin at once', async () => {
    const { id, state } = await create();
    expect(state).toBe('running');
    expect([...test.host.vms.values()].map(({ vm }) => vm.state)).toEqual(['running']);
    const events = await fetch(`${test.orchestrator.url}/v1/environments/${id}/events`, {
      headers: { authorization: `Bearer ${TEST_TOKEN}` },
    });
    const first = await events.body?.getReader().read();
    expect(Buffer.from(first?.value ?? []).toString()).toMatch(
      /^id: [0-9a-f]{32}\ndata: \{.*"state":"running".*\}\n\n/,
    );
  });

  it('17: a command that fails is 200 with all three fields; exec and attach are refused to plain keys, with the code that clients know', async () => {
    const { id } = await create();
    expect(await act(id, 'exec', { shell: 'exit 3' })).toMatchObject({
      status: 200,
      body: { exit_code: 3, stdout: '', stderr: '' },
    });
    const headers = { authorization: `Bearer ${await keyOf()}` };
    for (const [method, path] of [
      ['POST', `/v1/environments/${id}?action=exec`],
      ['GET', `/v1/environments/${id}/attach`],
    ] as const)
      expect(await call(method, path, method === 'POST' ? {} : undefined, { headers })).toMatchObject({
        status: 403,
        body: { error: { code: 'unauthorized' } },
      });
    expect((await call('GET', `/v1/environments/${id}`, undefined, { headers })).status).toBe(200);
  });

  it('18: what was destroyed is 404 as soon as that was answered', async () => {
    const { id } = await create();
    expect((await call('DELETE', `/v1/environments/${id}`)).status).toBe(204);
    for (const method of ['GET', 'DELETE'])
      expect(await call(method, `/v1/environments/${id}`)).toMatchObject({
        status: 404,
        body: { error: { code: 'not_found', message: `vm ${id} not found` } },
      });
  });

  it('19: a POST without body and Content-Type is one, where there is nothing to say', async () => {
    const { id } = await create();
    const { body: snapshot } = await bare(`/v1/environments/${id}/snapshots`);
    expect(snapshot.id).toEqual(expect.any(String));
    expect((await bare(`/v1/snapshots/${snapshot.id}?action=restore`)).status).toBe(204);
    expect((await bare(`/v1/environments/${id}?action=rotate-token`)).status).toBe(204);
    expect((await bare('/v1/hosts/host-1?action=cordon')).status).toBe(204);
    expect((await bare('/v1/hosts/host-1?action=uncordon')).status).toBe(204);
    expect((await bare('/v1/api-keys')).status).toBe(201);
    const fork = await bare(`/v1/environments/${id}?action=fork`);
    expect(fork.status).toBe(201);
    expect((await act(id, 'fork', 'null')).status).toBe(201);
    expect((await bare(`/v1/environments/${id}?action=drain`)).status).toBe(200);
    for (const path of ['/v1/environments', `/v1/environments/${id}?action=exec`, '/v1/hosts'])
      expect(await bare(path), path).toMatchObject({ status: 400, body: { error: { code: 'invalid_argument' } } });
    for (const { id: left } of (await call('GET', '/v1/snapshots')).body.snapshots)
      await call('DELETE', `/v1/snapshots/${left}?force=true`);
  });

  it('20: an action is checked before what it is for is looked up, and so is who asks', async () => {
    expect(await bare('/v1/environments/none?action=explode')).toMatchObject({
      status: 400,
      body: { error: { code: 'invalid_argument', message: 'missing or unknown action query parameter' } },
    });
    expect((await bare('/v1/environments/none')).status).toBe(400);
    const headers = { authorization: `Bearer ${await keyOf()}` };
    const asked = await call('POST', '/v1/environments/none?action=exec', 'no json', { headers });
    expect(asked).toMatchObject({ status: 403, body: { error: { code: 'unauthorized' } } });
  });

  it('29: an idle timeout is 0 or at least 60 s', async () => {
    for (const idle of [1, 59, -1])
      expect(
        (await call('POST', '/v1/environments', { task_id: newTask(), spec: { idle_timeout_seconds: idle } })).status,
      ).toBe(400);
    for (const idle of [0, 60]) await create({ spec: { idle_timeout_seconds: idle } });
  });

  it('30: spec.host_id is what was asked for, host_id where it is; what comes from a snapshot was not asked to be anywhere', async () => {
    const made = await create();
    expect(made).toMatchObject({ host_id: 'host-1' });
    expect(made.spec).not.toHaveProperty('host_id');
    const pinned = await create({ spec: { host_id: 'host-1' } });
    expect(pinned).toMatchObject({ host_id: 'host-1', spec: { host_id: 'host-1' } });
    const { body: snapshot } = await call('POST', `/v1/environments/${pinned.id}/snapshots`);
    const seeded = await create({ seed_snapshot_id: snapshot.id });
    for (const one of [seeded, (await act(pinned.id, 'fork')).body]) {
      expect(one.host_id).toBe('host-1');
      expect(one.spec).not.toHaveProperty('host_id');
      expect(one.spec).not.toHaveProperty('seed_snapshot_id');
    }
    for (const { id } of (await call('GET', '/v1/snapshots')).body.snapshots)
      await call('DELETE', `/v1/snapshots/${id}?force=true`);
  });

  it('a spec is told in the spellings that everybody reads', async () => {
    expect((await create({ spec: { arch: 'X86_64' } })).spec.arch).toBe('amd64');
  });

  it('31: a task_id is free as soon as its environment begins to go', async () => {
    const task_id = newTask();
    const { id } = await create({ task_id });
    let release = () => {};
    const slow = new Promise<void>((resolve) => {
      release = resolve;
    });
    test.host.before = ({ method }) => (method === 'DELETE' ? slow : undefined);
    const destroyed = call('DELETE', `/v1/environments/${id}`);
    await expect
      .poll(async () => (await call('GET', `/v1/environments/${id}`)).body)
      .toMatchObject({ state: 'destroying', task_id: '' });
    expect((await call('GET', `/v1/environments?task_id=${task_id}`)).body.environments).toEqual([]);
    const again = call('POST', '/v1/environments', { task_id });
    release();
    expect((await destroyed).status).toBe(204);
    expect(await again).toMatchObject({ status: 201, body: { id, task_id, state: 'running' } });
  });

  it('33: each route has its limit, and files theirs once decoded', async () => {
    const { id } = await create();
    const { body: snapshot } = await call('POST', `/v1/environments/${id}/snapshots`);
    const KiB = 1_024;
    const limits: [string, number][] = [
      ['/v1/environments', 1_024 * KiB],
      [`/v1/environments/${id}?action=exec`, 1_024 * KiB],
      [`/v1/environments/${id}/computer`, 1_024 * KiB],
      [`/v1/environments/${id}?action=fork`, 64 * KiB],
      [`/v1/environments/${id}?action=drain`, 64 * KiB],
      [`/v1/environments/${id}?action=rotate-token`, 64 * KiB],
      [`/v1/environments/${id}/snapshots`, 64 * KiB],
      [`/v1/snapshots/${snapshot.id}?action=restore`, 64 * KiB],
      ['/v1/hosts', 64 * KiB],
      ['/v1/api-keys', 64 * KiB],
      ['/login', 4 * KiB],
    ];
    for (const [path, limit] of limits) {
      const padded = (size: number) => `{"x":"${'y'.repeat(size - 8)}"}`;
      const over = await call('POST', path, padded(limit + 1));
      expect(over, path).toMatchObject({
        status: 413,
        body: {
          error: {
            code: 'payload_too_large',
            message: `request body exceeds the ${limit} byte limit for this endpoint`,
          },
        },
      });
    }
    const file = (bytes: number) => ({ files: { '/big': Buffer.alloc(bytes, 1).toString('base64') } });
    await create(file(512 * KiB));
    expect(await call('POST', '/v1/environments', { task_id: newTask(), ...file(512 * KiB + 1) })).toMatchObject({
      status: 413,
      body: { error: { code: 'payload_too_large' } },
    });
    const urlSafe = { files: { '/f': '-_-_' } };
    expect((await call('POST', '/v1/environments', { task_id: newTask(), ...urlSafe })).status).toBe(400);
    await call('DELETE', `/v1/snapshots/${snapshot.id}?force=true`);
  }, 30_000);

  it('36: labels and gpus are checked before a pin to an unknown host, which is 404, and times, healthcheck and files after it', async () => {
    const refused = async (body: object) => {
      const answer = await call('POST', '/v1/environments', { task_id: newTask(), ...body });
      return `${answer.status} ${answer.body.error.details?.field}`;
    };
    const pin = { host_id: 'nowhere' };
    expect(await refused({ spec: { ...pin, labels: { '-': 'x' } } })).toBe('400 spec.labels.-');
    expect(await refused({ spec: { ...pin, gpus: -1 } })).toBe('400 spec.gpus');
    expect(await refused({ spec: { ...pin, gpu_profile: '1g.10gb' } })).toBe('400 spec.gpu_profile');
    expect(await refused({ task_id: '', spec: pin })).toBe('400 task_id');
    const after = [
      { spec: { ...pin, idle_timeout_seconds: 30 } },
      { spec: { ...pin, max_runtime_seconds: -1 } },
      { spec: pin, healthcheck: {} },
      { spec: pin, desktop: { width: 1, height: 1 } },
      { spec: pin, startup_script_timeout_seconds: -1 },
      { spec: pin, files: { relative: '' } },
      { spec: pin },
    ];
    for (const body of after) expect(await refused(body), JSON.stringify(body)).toBe('404 spec.host_id');
    for (const later of [{ labels: { '-': 'x' } }, { idle_timeout_seconds: 30 }, { ...pin, max_runtime_seconds: -1 }])
      expect(await refused({ spec: { gpu_profile: '1g.10gb', ...later } })).toBe('400 spec.gpu_profile');
    expect(await refused({ spec: { idle_timeout_seconds: 30, labels: { '-': 'x' } } })).toBe('400 spec.labels.-');
  });
});
