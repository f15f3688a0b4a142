import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError, type Environment } from '@fuse/contract';
import { describe, expect, it } from 'vitest';
import { engines } from '../db/test-database.ts';
import { callerOf } from '../test-orchestrator.ts';
import { TOKEN_FILE } from './environment-token.ts';
import { environmentsOn } from './environments-testing.ts';

describe.each(engines)("environments' own credentials on %s", (engine) => {
  const scene = environmentsOn(engine, 'token');
  const { call } = scene;

  const create = async (body: object = {}): Promise<Environment> => {
    const before = new Set(scene.test.host.vms.keys());
    const made = await scene.create(body);
    const vmId = [...scene.test.host.vms.keys()].find((id) => !before.has(id));
    vmOf.set(made.id, vmId ?? '');
    return made;
  };
  const vmOf = new Map<string, string>();
  const fileIn = (root: string) => join(root, TOKEN_FILE);
  const fileOf = (id: string) => fileIn(scene.test.host.vms.get(vmOf.get(id) ?? '')?.root ?? '');
  const tokenOf = (id: string) => readFile(fileOf(id), 'utf8');
  const rotate = (id: string) => call('POST', `/v1/environments/${id}?action=rotate-token`);
  const as = (token: string, method: string, path: string, body?: unknown, ask = call) =>
    ask(method, path, body, { headers: { authorization: `Bearer ${token}` } });
  const status = async (token: string, id: string) => (await as(token, 'GET', `/v1/environments/${id}`)).status;

  it('reach that environment and nothing else', async () => {
    const [own, other] = [await create(), await create()];
    const token = await tokenOf(own.id);
    expect(token).toMatch(/^fuse_env_[A-Za-z0-9_-]{43}$/);
    expect((await stat(fileOf(own.id))).mode & 0o777).toBe(0o600);
    expect(await tokenOf(other.id)).not.toBe(token);
    expect((await as(token, 'GET', `/v1/environments/${own.id}`)).body).toEqual(own);
    expect(
      (await as(token, 'POST', `/v1/environments/${own.id}?action=exec`, { cmd: ['echo', 'me'] })).body,
    ).toMatchObject({ stdout: 'me\n' });
    expect((await as(token, 'GET', `/v1/environments/${other.id}`)).status).toBe(404);
    for (const [method, path] of [
      ['GET', '/v1/environments'],
      ['POST', '/v1/environments'],
      ['GET', '/v1/runs'],
      ['DELETE', `/v1/environments/${own.id}`],
      ['PATCH', `/v1/environments/${own.id}`],
      ['POST', `/v1/environments/${own.id}?action=rotate-token`],
      ['POST', `/v1/environments/${own.id}?action=fork`],
    ] as const)
      expect(await as(token, method, path, method === 'GET' ? undefined : {}), `${method} ${path}`).toMatchObject({
        status: 403,
        body: { error: { code: 'unauthorized' } },
      });
    await call('DELETE', `/v1/environments/${own.id}`);
    await expect.poll(() => status(token, own.id), { timeout: 1_000, interval: 20 }).toBe(401);
  });

  it('are replaced: the old one is refused at once, what it opened is cut, the guest has the new one', async () => {
    const { id } = await create();
    const old = await tokenOf(id);
    const stream = await fetch(`${scene.test.orchestrator.url}/v1/environments/${id}/events`, {
      headers: { authorization: `Bearer ${old}` },
    });
    const cut = stream.text().then(
      () => 'ended',
      () => 'cut',
    );
    expect(await rotate(id)).toMatchObject({ status: 204, body: '' });
    expect(await status(old, id)).toBe(401);
    const fresh = await tokenOf(id);
    expect(fresh).not.toBe(old);
    expect(await status(fresh, id)).toBe(200);
    expect(await cut).toBe('cut');

    await Promise.all(Array.from({ length: 8 }, () => rotate(id)));
    const last = await tokenOf(id);
    expect(await status(last, id)).toBe(200);
    expect(await status(fresh, id)).toBe(401);
  });

  // It takes several connections.
  if (engine === 'postgres')
    it('are refused by every replica within a second', async () => {
      await using replica = await scene.test.another();
      const ask = callerOf(() => replica.url);
      const { id } = await create();
      const old = await tokenOf(id);
      expect((await as(old, 'GET', `/v1/environments/${id}`, undefined, ask)).status).toBe(200);
      await rotate(id);
      const refused = async () => (await as(old, 'GET', `/v1/environments/${id}`, undefined, ask)).status;
      await expect.poll(refused, { timeout: 1_000, interval: 20 }).toBe(401);
      expect((await as(await tokenOf(id), 'GET', `/v1/environments/${id}`, undefined, ask)).status).toBe(200);
    });

  it('are refused though the guest could not be given the new one, which a resume gives it', async () => {
    const { id } = await create();
    const old = await tokenOf(id);
    scene.test.host.before = ({ path }) => {
      if (path.endsWith('/files')) throw new AppError('conflict', '/fuse is no directory');
    };
    expect(await rotate(id)).toMatchObject({
      status: 409,
      body: { error: { message: expect.stringMatching(/old credential is refused now/) } },
    });
    scene.test.host.before = () => {};
    expect(await status(old, id)).toBe(401);
    expect(await tokenOf(id)).toBe(old);
    await call('POST', `/v1/environments/${id}?action=pause`);
    expect(await rotate(id)).toMatchObject({ status: 409, body: { error: { details: { state: 'paused' } } } });
    await call('POST', `/v1/environments/${id}?action=resume`);
    expect(await status(await tokenOf(id), id)).toBe(200);
  });

  it('are their own in each fork and start from a snapshot, stay theirs in a restore, and are in no snapshot that is told', async () => {
    const { id } = await create();
    const old = await tokenOf(id);
    const snapshot = await call('POST', `/v1/environments/${id}/snapshots`, {});
    expect(snapshot.status).toBe(201);
    const known = new Set(scene.test.host.vms.keys());
    const forks = await call('POST', `/v1/environments/${id}?action=fork`, { count: 3 });
    expect(forks.status).toBe(201);
    const seeded = await create({ seed_snapshot_id: snapshot.body.id });
    const roots = [...scene.test.host.vms].filter(([vm]) => !known.has(vm)).map(([, { root }]) => root);
    const tokens = await Promise.all(roots.map((root) => readFile(fileIn(root), 'utf8')));
    expect(new Set([old, ...tokens]).size).toBe(5);
    expect(await status(await tokenOf(seeded.id), seeded.id)).toBe(200);

    await rotate(id);
    const current = await tokenOf(id);
    expect((await call('POST', `/v1/snapshots/${snapshot.body.id}?action=restore`)).status).toBe(204);
    expect(await tokenOf(id)).toBe(current);
    expect(await status(current, id)).toBe(200);
    const listed = [await call('GET', '/v1/snapshots'), await call('GET', '/v1/environments'), snapshot, forks];
    expect(JSON.stringify(listed.map(({ body }) => body))).not.toMatch(/fuse_env_|token_/);
    expect((await call('DELETE', `/v1/environments/${id}`)).status).toBe(204);
    for (const { id: snapshotId } of (await call('GET', '/v1/snapshots')).body.snapshots)
      await call('DELETE', `/v1/snapshots/${snapshotId}?force=true`);
  });

  it('are not given to runs', async () => {
    let written = 0;
    scene.test.host.before = ({ path }) => void (path.endsWith('/files') && written++);
    const run = await call('POST', '/v1/runs', { cmd: ['true'] });
    expect(run.status).toBeLessThan(300);
    await expect.poll(async () => (await call('GET', `/v1/runs/${run.body.id}`)).body.finished_at).toBeDefined();
    expect(written).toBe(0);
  });
});
