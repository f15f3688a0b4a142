import { type EnvironmentEvent, EnvironmentNetwork, type NetworkPolicy } from '@fuse/contract';
import { describe, expect, it } from 'vitest';
import { engines } from '../db/test-database.ts';
import { environmentsOn } from '../environments/environments-testing.ts';
import { TEST_TOKEN } from '../test-orchestrator.ts';

const NONE: NetworkPolicy = { egress: 'none', allow: [], deny: [] };
const PORTS = [
  { from: 80, to: 80 },
  { from: 443, to: 443 },
];
const PYPI: NetworkPolicy = { egress: 'allowlist', allow: [{ host: 'pypi.org', ports: PORTS }], deny: [] };
const pypi = { egress: 'allowlist', allow: ['PyPI.org'] };
const open = { egress: 'allowlist' };

describe.each(engines)('networks on %s', (engine) => {
  const scene = environmentsOn(engine, 'net');
  const { call, create, newTask } = scene;
  const cards = () => scene.test.host.networks;
  const vmOf = (): string => [...scene.test.host.vms.keys()].at(-1) ?? '';
  const enforcedOn = (vm: string) => cards().of(vm)?.policies;
  const networkOf = async (id: string, init?: RequestInit) => {
    const { status, body } = await call('GET', `/v1/environments/${id}/network`, undefined, init);
    expect({ status, body }).toMatchObject({ status: 200 });
    return EnvironmentNetwork.parse(body);
  };
  const patch = (id: string, network: unknown) => call('PATCH', `/v1/environments/${id}`, { network });

  it('are none by default: no card, nothing reachable, nothing to tell', async () => {
    const made = await create();
    expect(made.network).toEqual(NONE);
    expect(cards().of(vmOf())).toBeUndefined();
    expect(await networkOf(made.id)).toEqual({
      policy: NONE,
      sent_bytes: 0,
      received_bytes: 0,
      allowed_count: 0,
      refused_count: 0,
      connections: [],
    });
    const refused = await patch(made.id, open);
    expect(refused).toMatchObject({
      status: 409,
      body: {
        error: { code: 'conflict', details: { reason: 'no_network_card' }, hint: expect.stringContaining('allowlist') },
      },
    });
    expect((await call('GET', `/v1/environments/${made.id}`)).body.network).toEqual(NONE);
    expect((await patch(made.id, { egress: 'none' })).status).toBe(200);
  });

  it('are canonical in every view, and what their host enforces', async () => {
    const made = await create({ network: pypi });
    expect(made.network).toEqual(PYPI);
    expect(enforcedOn(vmOf())).toEqual([PYPI]);
    expect((await call('GET', '/v1/environments')).body.environments).toMatchObject([{ network: PYPI }]);
  });

  it('are refused with the field and a hint', async () => {
    for (const [network, field] of [
      [{ egress: 'allowlist', allow: ['pypi.org', '127.1'] }, 'network.allow.1'],
      [{ egress: 'internet', deny: ['203.0.113.7/24'] }, 'network.deny.0'],
      [{ egress: 'allowlist', allow: ['169.254.169.254'] }, 'network.allow.0'],
      [{ egress: 'internet', allow: ['pypi.org'] }, 'network.allow'],
      [{ egress: 'open' }, 'network.egress'],
      [{ egress: 'none', rules: [] }, 'network.rules'],
      [{ egress: 'allowlist', allow: Array(257).fill('pypi.org') }, 'network.allow'],
    ] as const) {
      const bodies = { '/v1/environments': { task_id: newTask(), network }, '/v1/runs': { cmd: ['true'], network } };
      for (const [path, body] of Object.entries(bodies))
        expect(await call('POST', path, body)).toMatchObject({
          status: 400,
          body: { error: { code: 'invalid_argument', details: { field } } },
        });
    }
    const made = await create({ network: open });
    expect(await patch(made.id, { egress: 'allowlist', allow: ['203.0.113.7/24'] })).toMatchObject({
      status: 400,
      body: { error: { details: { field: 'network.allow.0' }, hint: expect.stringContaining('203.0.113.0/24') } },
    });
    expect(await patch(made.id, { egress: 'allowlist', allow: [{ cidr: '169.254.169.254/32' }] })).toMatchObject({
      status: 400,
      body: {
        error: { details: { field: 'network.allow.0.cidr' }, hint: expect.stringContaining('Take the rule out') },
      },
    });
  });

  it('change while it runs, enforced when answered, and of many changes at once the last one stays', async () => {
    const { id } = await create({ network: open });
    const vm = vmOf();
    expect((await patch(id, pypi)).body.network).toEqual(PYPI);
    expect(enforcedOn(vm)).toEqual([PYPI]);
    expect((await patch(id, { egress: 'none' })).status).toBe(200);
    expect(enforcedOn(vm)).toEqual([NONE]);
    const answers = await Promise.all(
      Array.from({ length: 8 }, (_, at) => patch(id, { egress: 'allowlist', allow: [`h${at}.example.com`] })),
    );
    expect(answers.map(({ status }) => status)).toEqual(Array(8).fill(200));
    const { network } = (await call('GET', `/v1/environments/${id}`)).body;
    expect(enforcedOn(vm)).toEqual([network]);
  });

  it('are kept by pause and resume, also when they are changed meanwhile, and by forks, snapshots and restores', async () => {
    const { id } = await create({ network: open });
    const vm = vmOf();
    await call('POST', `/v1/environments/${id}?action=pause`);
    expect((await patch(id, pypi)).status).toBe(200);
    // As a host that was given an older policy by then.
    cards().set(vm, [NONE]);
    expect((await call('POST', `/v1/environments/${id}?action=resume`)).body).toMatchObject({
      state: 'running',
      network: PYPI,
    });
    expect(enforcedOn(vm)).toEqual([PYPI]);

    const fork = await call('POST', `/v1/environments/${id}?action=fork`, {});
    expect(fork.body.network).toEqual(PYPI);
    expect(enforcedOn(vmOf())).toEqual([PYPI]);
    const narrower = await call('POST', `/v1/environments/${id}?action=fork`, { network: { egress: 'none' } });
    expect(narrower.body.network).toEqual(NONE);
    expect(enforcedOn(vmOf())).toEqual([NONE]);

    const { body: snapshot } = await call('POST', `/v1/environments/${id}/snapshots`, {});
    const seeded = await create({ seed_snapshot_id: snapshot.id });
    expect(seeded.network).toEqual(PYPI);
    expect((await create({ seed_snapshot_id: snapshot.id, network: { egress: 'internet' } })).network).toMatchObject({
      egress: 'internet',
    });
    await patch(id, { egress: 'allowlist', allow: ['later.example.com'] });
    const { body: later } = await call('GET', `/v1/environments/${id}`);
    expect((await call('POST', `/v1/snapshots/${snapshot.id}?action=restore`)).status).toBeLessThan(300);
    expect((await call('GET', `/v1/environments/${id}`)).body.network).toEqual(later.network);
    expect(enforcedOn(vm)).toEqual([later.network]);
    await call('DELETE', `/v1/snapshots/${snapshot.id}?force=true`);
  });

  it('of one without a card none of its forks has one', async () => {
    const { id } = await create();
    const forked = await call('POST', `/v1/environments/${id}?action=fork`, { network: open });
    expect(forked).toMatchObject({ status: 409, body: { error: { details: { reason: 'no_network_card' } } } });
    expect((await call('POST', `/v1/environments/${id}?action=fork`, {})).body.network).toEqual(NONE);
  });

  it('of a snapshot without a card cannot be opened, unless its disk will do', async () => {
    const { id } = await create();
    const { body: snapshot } = await call('POST', `/v1/environments/${id}/snapshots`, {});
    const from = { seed_snapshot_id: snapshot.id, network: open };
    expect(await call('POST', '/v1/environments', { task_id: newTask(), ...from })).toMatchObject({
      status: 409,
      body: {
        error: { code: 'conflict', details: { reason: 'no_network_card' }, hint: expect.stringContaining('fallback') },
      },
    });
    expect((await create({ ...from, fallback: 'disk' })).network).toMatchObject({ egress: 'allowlist' });
  });

  it('of runs are theirs for good', async () => {
    const { body: run } = await call('POST', '/v1/runs', { cmd: ['true'], network: pypi, wait: true });
    expect(run).toMatchObject({ state: 'succeeded', network: PYPI });
    expect(cards().enforced.at(-1)?.policies).toEqual([PYPI]);
    expect((await call('GET', '/v1/runs?limit=1')).body.runs[0].network).toEqual(PYPI);
    const { body: plain } = await call('POST', '/v1/runs', { cmd: ['true'], wait: true });
    expect(plain.network).toEqual(NONE);
  });

  it('have maxima and defaults of tenants: what is asked for beyond is refused, what runs is held to one that is lowered', async () => {
    const acme = { headers: { 'fuse-tenant': 'acme' } };
    const start = (network?: unknown) => call('POST', '/v1/environments', { task_id: newTask(), network }, acme);
    const tenant = await call('POST', '/v1/tenants', {
      id: 'acme',
      network_max: { egress: 'allowlist', allow: ['*.example.com', 'pypi.org'] },
      network_default: pypi,
    });
    expect(tenant.body).toMatchObject({ network_max: { egress: 'allowlist' }, network_default: PYPI });
    expect(await start({ egress: 'internet' })).toMatchObject({
      status: 403,
      body: { error: { code: 'forbidden', details: { field: 'network.egress', ceiling: 'tenant', rule: 'internet' } } },
    });
    const over = { egress: 'allowlist', allow: ['a.example.com', 'github.com:22'] };
    const refusal = {
      status: 403,
      body: {
        error: { code: 'forbidden', details: { field: 'network.allow.1', ceiling: 'tenant', rule: 'github.com:22' } },
      },
    };
    expect(await start(over)).toMatchObject(refusal);
    expect(await call('POST', '/v1/runs', { cmd: ['true'], network: over }, acme)).toMatchObject(refusal);
    const { body: made } = await start();
    expect(made.network).toEqual(PYPI);
    const vm = vmOf();
    expect(enforcedOn(vm)).toEqual([PYPI, tenant.body.network_max]);
    expect(await call('PATCH', `/v1/environments/${made.id}`, { network: over }, acme)).toMatchObject(refusal);

    const max = { egress: 'none', allow: [], deny: [] };
    expect(await call('PATCH', '/v1/tenants/acme', { network_max: max })).toMatchObject({
      status: 400,
      body: { error: { details: { field: 'network_max' } } },
    });
    const lowered = await call('PATCH', '/v1/tenants/acme', { network_max: max, network_default: null });
    expect(lowered.body).toMatchObject({ network_max: NONE });
    expect(lowered.body).not.toHaveProperty('network_default');
    expect(enforcedOn(vm)).toEqual([PYPI, NONE]);
    expect(await networkOf(made.id, acme)).toMatchObject({ policy: PYPI, tenant_max: NONE });
    expect((await call('PATCH', '/v1/tenants/acme', { network_max: null })).body).not.toHaveProperty('network_max');
    expect(enforcedOn(vm)).toEqual([PYPI]);
    await call('DELETE', `/v1/environments/${made.id}`, undefined, acme);
  });

  it('tell what was refused, once, on the streams of the environment and of all, and bill what was sent', async () => {
    const { id } = await create({ network: pypi });
    const vm = vmOf();
    const own = await follow(`/v1/environments/${id}/events`);
    const all = await follow('/v1/events');
    expect((await own.next()).value).toMatchObject({ event: 'state', state: 'running' });
    const before = (await call('GET', '/v1/usage/history')).body.total?.egress_bytes ?? 0;
    cards().carry(vm, { sent: 1_000, received: 5_000 });
    cards().refuse(vm, { name: 'evil.example.com' });
    cards().refuse(vm, { name: 'a\0b.example.com', address: '192.0.2.7', reason: 'forbidden_address' });
    const first = (await nextOf(own, 'network')).network;
    expect(first).toEqual({
      at: expect.any(String),
      name: 'evil.example.com',
      port: 443,
      protocol: 'tls',
      verdict: 'refused',
      reason: 'not_allowed',
      count: 1,
    });
    expect(await nextOf(own, 'network')).toMatchObject({
      vm_id: id,
      state: 'running',
      network: { name: 'a\uFFFDb.example.com', address: '192.0.2.7', reason: 'forbidden_address' },
    });
    expect(await nextOf(all, 'network')).toMatchObject({ tenant_id: 'default', vm_id: id, network: first });
    expect(await networkOf(id)).toMatchObject({
      policy: PYPI,
      sent_bytes: 1_000,
      allowed_count: 1,
      refused_count: 2,
      connections: [{ verdict: 'refused' }, { verdict: 'refused' }, { verdict: 'allowed', name: 'pypi.org' }],
    });

    // What came after the last look is there in the end all the same.
    cards().carry(vm, { sent: 234, received: 1 });
    cards().refuse(vm, { name: 'last.example.com' });
    await call('DELETE', `/v1/environments/${id}`);
    expect((await nextOf(own, 'network')).network).toMatchObject({ name: 'last.example.com' });
    expect(await networkOf(id)).toEqual({
      policy: PYPI,
      sent_bytes: 1_234,
      received_bytes: 5_001,
      allowed_count: 2,
      refused_count: 3,
      connections: [],
    });
    const { total } = (await call('GET', '/v1/usage/history')).body;
    expect(total.egress_bytes - before).toBe(1_234);
    await all.return(undefined);
  });

  it('are placed where there can be one, and say why there is none', async () => {
    scene.test.host.capacity.no_network = 'it does not run as root';
    try {
      await expect
        .poll(async () => (await call('POST', '/v1/environments', { task_id: newTask(), network: open })).body)
        .toMatchObject({
          error: {
            code: 'unavailable',
            message: expect.stringContaining('no host can give it a network'),
            details: { reason: 'impossible', hosts: 'host-1 can give it no network: it does not run as root' },
          },
        });
      expect((await create()).network).toEqual(NONE);
    } finally {
      delete scene.test.host.capacity.no_network;
    }
    const waits = { task_id: newTask(), network: open };
    await expect.poll(async () => (await call('POST', '/v1/environments', waits)).status).toBe(201);
  });

  /** Connected when it resolves. */
  async function follow(path: string): Promise<AsyncGenerator<EnvironmentEvent, void>> {
    const response = await fetch(`${scene.test.orchestrator.url}${path}`, {
      headers: { authorization: `Bearer ${TEST_TOKEN}` },
    });
    return eventsOf(response);
  }

  async function* eventsOf(response: Response): AsyncGenerator<EnvironmentEvent, void> {
    let text = '';
    for await (const chunk of response.body ?? []) {
      text += Buffer.from(chunk as Uint8Array).toString(); // as fetch gives them
      for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
        const [, data] = /^data: (.*)$/m.exec(text.slice(0, end)) ?? [];
        text = text.slice(end + 2);
        if (data !== undefined) yield JSON.parse(data);
      }
    }
  }

  async function nextOf(events: AsyncGenerator<EnvironmentEvent, void>, kind: string): Promise<EnvironmentEvent> {
    for (;;) {
      const { value, done } = await events.next();
      if (done === true || value === undefined) throw new Error(`ended without ${kind}`);
      if (value.event === kind) return value;
    }
  }
});
