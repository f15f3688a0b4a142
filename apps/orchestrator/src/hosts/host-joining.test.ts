/** Hosts that register themselves, by a join token and later by their own. */
import { createHash } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { engines } from '../db/test-database.ts';
import { startTestOrchestrator, type TestOrchestrator } from '../test-orchestrator.ts';
import { TestHost } from './test-host.ts';

const OWN_TOKEN = 'the-own-token-of-this-host';

describe.each(engines)('joining on %s', (engine) => {
  let system: TestOrchestrator;
  let agent: TestHost;
  beforeAll(async () => {
    system = await startTestOrchestrator(engine);
  }, 60_000);
  afterAll(() => system[Symbol.asyncDispose]());
  beforeEach(async () => {
    agent = await TestHost.start({ token: OWN_TOKEN });
  });
  afterEach(async () => {
    for (const id of ['new', 'other', 'third']) await system.call('DELETE', `/v1/hosts/${id}`);
    await agent[Symbol.asyncDispose]();
  });

  const mint = async (request: unknown = undefined) =>
    (await system.call('POST', '/v1/host-join-tokens', request)).body;
  const join = (bearer: string | undefined, change: object = {}) =>
    system.call(
      'POST',
      '/v1/hosts/join',
      { id: 'new', url: agent.url, token: OWN_TOKEN, ...change },
      { headers: { authorization: bearer === undefined ? '' : `Bearer ${bearer}` } },
    );

  it('takes a token that is shown once, and registers the host with what it and the token say', async () => {
    const minted = await system.call('POST', '/v1/host-join-tokens', { region: 'eu', labels: { rack: '7' } });
    expect(minted).toMatchObject({ status: 201, body: { token: expect.stringMatching(/^fuse_join_.{43}$/), uses: 1 } });
    expect(Date.parse(minted.body.expires_at) - Date.now()).toBeGreaterThan(3_000_000);
    const joined = await join(minted.body.token, { labels: { disk: 'fast' } });
    expect(joined).toMatchObject({
      status: 201,
      body: {
        host: { id: 'new', state: 'active', region: 'eu', labels: { rack: '7', disk: 'fast' }, capacity: { cpus: 8 } },
        cluster_tag: expect.any(String),
      },
    });
    expect(JSON.stringify(joined.body)).not.toContain(OWN_TOKEN);
    const made = await system.call('POST', '/v1/environments', { task_id: 'a', spec: { host_id: 'new' } });
    expect(made.status).toBe(201);
    await system.call('DELETE', '/v1/environments/fuse-a');
  });

  it('is refused without a good token, before anything is asked of the host', async () => {
    const { token: used } = await mint();
    expect((await join(used, { id: 'other' })).status).toBe(201);
    const { token: expired } = await mint({ expires_in_seconds: 1 });
    await new Promise((resolve) => setTimeout(resolve, 1_100));
    const hashed = createHash('sha256').update(used).digest('hex');
    let asked = 0;
    await using untouched = await TestHost.start({ token: OWN_TOKEN });
    untouched.arriving = () => {
      asked += 1;
    };
    for (const bearer of [undefined, 'x', 'fuse_join_x', OWN_TOKEN, used, expired, hashed]) {
      const answer = await join(bearer, { url: untouched.url });
      expect([answer.status, answer.body.error.code], bearer).toEqual([401, 'unauthorized']);
    }
    expect(asked).toBe(0);
    expect((await system.call('GET', '/v1/hosts/new')).status).toBe(404);
  });

  it('counts uses exactly, whoever comes at once, and none for a host that could not be asked', async () => {
    const { token } = await mint({ uses: 2 });
    expect((await join(token, { url: 'http://127.0.0.1:1' })).status).toBe(502);
    expect((await join(token, { token: 'a-token-that-is-not-its' })).status).toBe(502);
    const answers = await Promise.all(['new', 'other', 'third'].map((id) => join(token, { id })));
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 201, 401]);
  });

  it('lets a host come again with its own token alone, with another address or token, as its operator left it', async () => {
    const { token } = await mint({ labels: { rack: '7' } });
    const { body: first } = await join(token);
    await system.call('POST', '/v1/hosts/new?action=drain');
    await using moved = await TestHost.start({ token: 'another-token-of-its-own' });
    const again = await join(OWN_TOKEN, { url: moved.url, token: moved.token, labels: { disk: 'slow' } });
    expect(again).toMatchObject({
      status: 201,
      body: { host: { url: moved.url, state: 'draining', labels: { rack: '7', disk: 'slow' } } },
    });
    expect(again.body.host.created_at).toBe(first.host.created_at);
    expect((await join(OWN_TOKEN)).status).toBe(401); // it is that no more
    expect((await join(moved.token, { id: 'other', url: moved.url, token: moved.token })).status).toBe(401);
  });

  it('never takes the id of a host that has another token', async () => {
    const { token } = await mint({ uses: 5 });
    expect((await join(token)).status).toBe(201);
    await using stranger = await TestHost.start({ token: 'the-token-of-a-stranger' });
    expect(await join(token, { url: stranger.url, token: stranger.token })).toMatchObject({
      status: 409,
      body: { error: { code: 'conflict', details: { field: 'id' } } },
    });
    expect((await system.call('GET', '/v1/hosts/new')).body.url).toBe(agent.url);
    expect((await join(token)).status).toBe(201); // it still has the token it had
  });

  it.each([
    [{ expires_in_seconds: 0 }, 'expires_in_seconds'],
    [{ uses: 0 }, 'uses'],
    [{ labels: { '-x': 'y' } }, 'labels.-x'],
  ])('makes no token of %j', async (request, field) => {
    expect(await system.call('POST', '/v1/host-join-tokens', request)).toMatchObject({
      status: 400,
      body: { error: { details: { field } } },
    });
  });

  it('needs a token that is long enough', async () => {
    const { token } = await mint();
    expect(await join(token, { token: 'short' })).toMatchObject({
      status: 400,
      body: { error: { details: { field: 'token' } } },
    });
  });
});
