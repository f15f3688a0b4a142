/** Every way out that we know of, tried as root inside real VMs on a small internet, under each policy and after whatever a policy has to outlast. */
import { SmallInternet, world } from '@fuse/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Guest } from '../support/life.ts';
import { LocalStack } from '../support/local-stack.ts';
import { arm, attack, tryOne } from './attack.ts';
import { allowedWays, allowlist, denying, fixedBatches, names, stillHeld } from './attempts.ts';

const spec = { cpus: 1, ram_mb: 256, storage_gb: 1 };
const ONE = { egress: 'allowlist' as const, allow: ['one.shop.org'] };
const MIB = 1024 * 1024;

let internet: SmallInternet;
let stack: LocalStack;
let attempts = 0;
beforeAll(async () => {
  internet = await SmallInternet.open();
  await internet.setNames(names);
  stack = await LocalStack.up({
    FUSE_HOST_CPUS: '16',
    FUSE_HOST_RAM_MB: '2048',
    FUSE_EGRESS_NETNS: internet.egressNamespace,
    FUSE_DNS_SERVERS: internet.resolver,
  });
}, 180_000);
afterAll(async () => {
  process.stdout.write(`${attempts} attempts\n`);
  await stack[Symbol.asyncDispose]();
  await internet[Symbol.asyncDispose]();
}, 120_000);

type Policy = Parameters<typeof stack.client.environments.update>[1]['network'];

async function start(task_id: string, more: object): Promise<Guest> {
  const { id } = await stack.client.environments.create({ task_id, spec, ...more });
  const guest = new Guest(stack.client, id);
  await arm(guest, internet);
  return guest;
}
const setPolicy = (guest: Guest, network: Policy) => stack.client.environments.update(guest.id, { network });
const report = (guest: Guest) => stack.client.environments.network(guest.id);
const destroy = (guest: Guest) => stack.client.environments.destroy(guest.id);
async function run(guest: Guest, batch: Parameters<typeof attack>[2]): Promise<void> {
  attempts += await attack(guest, internet, batch);
}

describe('without a network', { timeout: 300_000 }, () => {
  it('there is no card, and nothing to get out by', async () => {
    const guest = await start('without', {});
    await run(guest, fixedBatches.withoutCard);
    await destroy(guest);
  });
});

describe('with an allow-list', { timeout: 600_000 }, () => {
  let guest: Guest;
  beforeAll(async () => {
    guest = await start('listed', { network: allowlist });
  });
  afterAll(() => destroy(guest));

  it('nothing that it does not name leaves the host, in any spelling, protocol or frame', async () => {
    await run(guest, fixedBatches.allowlist);
  });

  it('a name opens no address that is forbidden', async () => {
    await run(guest, fixedBatches.traps);
  });

  it('an address that was public when it was looked up first is judged again', async () => {
    expect(await tryOne(guest, `http('rebind.shop.org', '/ok')`)).toMatch(/^reached/);
    await internet.forget();
    // What the resolver said holds for a second, at least.
    await expect.poll(() => tryOne(guest, `http('rebind.shop.org', '/ok')`), { timeout: 60_000 }).toMatch(/^refused/);
    expect((await internet.flows()).filter((flow) => flow.startsWith(world.private))).toEqual([]);
    attempts += 1;
  });

  it('a connection serves the name that was looked up alone', async () => {
    await run(guest, fixedBatches.requests);
  });

  it('what it names is reached', async () => {
    await run(guest, allowedWays);
  });

  it('refusals are told in the report, and by the command line', async () => {
    const { connections, refused_count } = await report(guest);
    expect(refused_count).toBeGreaterThan(50);
    const reasons = new Set(connections.map(({ reason }) => reason));
    for (const reason of ['not_allowed', 'forbidden_address', 'name_mismatch', 'no_name', 'unknown_protocol', 'denied'])
      expect([...reasons]).toContain(reason);
    const shown = await stack.fuse(['environment', 'network', guest.id]);
    expect(shown.stdout).toMatch(/two\.shop\.org|metadata\.shop\.org/);
  });

  it('megabytes come and go as they are, and are counted', async () => {
    const before = await report(guest);
    const sums = await guest.sh(
      `head -c ${3 * MIB} /dev/urandom > /tmp/up; sha256sum < /tmp/up; curl -sS --cacert /tmp/ca.pem --data-binary @/tmp/up https://one.shop.org/ok;
       curl -sS http://one.shop.org/bytes/${5 * MIB} | sha256sum; head -c ${5 * MIB} /dev/zero | tr '\\0' x | sha256sum`,
      120_000,
    );
    const [up = '', answer = '', down, wanted] = sums.trim().split('\n');
    expect(JSON.parse(answer)).toMatchObject({ received: 3 * MIB, sha256: up.split(' ')[0] });
    expect(down).toBe(wanted);
    const after = await report(guest);
    expect(after.sent_bytes - before.sent_bytes).toBeGreaterThan(3 * MIB);
    expect(after.received_bytes - before.received_bytes).toBeGreaterThan(5 * MIB);
    await expect
      .poll(async () => (await stack.client.usage.history()).total.egress_bytes, { timeout: 60_000 })
      .toBeGreaterThan(3 * MIB);
  });

  it('a connection that is open is cut when the policy does not allow it any more', async () => {
    await internet.forget();
    const open = tryOne(guest, `http('one.shop.org', '/slow')`);
    await expect.poll(() => internet.connections()).toContainEqual(expect.objectContaining({ path: '/slow' }));
    await setPolicy(guest, { egress: 'allowlist', allow: ['two.shop.org'] });
    await open; // it would go on for ever
    expect(await tryOne(guest, `http('one.shop.org', '/forbidden')`)).toMatch(/^refused/);
    expect(await tryOne(guest, `http('two.shop.org', '/ok')`)).toMatch(/^reached/);
    const cut = (await report(guest)).connections.find(({ detail }) => detail?.includes('cut by a new policy'));
    expect(cut).toMatchObject({ name: 'one.shop.org', port: 80 });
    attempts += 2;
  });

  it('it holds after pause, resume, restore, in a fork and in what starts from a snapshot', async () => {
    await setPolicy(guest, ONE);
    await run(guest, stillHeld('changed while it runs'));
    await stack.client.environments.pause(guest.id);
    await stack.client.environments.resume(guest.id);
    await run(guest, stillHeld('paused and resumed'));
    const snapshot = await stack.client.snapshots.create(guest.id);
    await setPolicy(guest, { egress: 'internet' });
    await setPolicy(guest, ONE);
    await stack.client.snapshots.restore(snapshot.id);
    await run(guest, stillHeld('restored'));
    const fork = new Guest(stack.client, (await stack.client.environments.fork(guest.id)).id);
    await run(fork, stillHeld('forked'));
    await destroy(fork);
    const { id } = await stack.client.environments.create({ task_id: 'seeded', seed_snapshot_id: snapshot.id });
    const seeded = new Guest(stack.client, id);
    await run(seeded, stillHeld('started from a snapshot'));
    await destroy(seeded);
    await stack.client.snapshots.delete(snapshot.id, { force: true });
  });

  it('it holds when the service is killed and started again', async () => {
    await stack.end('SIGKILL');
    await stack.start();
    await run(guest, stillHeld('taken up again'));
  });
});

describe('with the Internet', { timeout: 600_000 }, () => {
  let guest: Guest;
  let neighbour: Guest;
  beforeAll(async () => {
    guest = await start('open', { network: { egress: 'internet' } });
    neighbour = await start('neighbour', { network: { egress: 'internet' } });
    await neighbour.sh('cd /tmp && setsid python3 -m http.server 7777 > /dev/null 2>&1 < /dev/null & sleep 1');
  });
  afterAll(async () => {
    await destroy(guest);
    await destroy(neighbour);
  });

  it('no address that is not public is reached, and nothing but TCP and look-ups leaves', async () => {
    await run(guest, fixedBatches.internet);
    expect(await tryOne(guest, `http('evil.org')`)).toMatch(/^reached/);
    expect(await tryOne(guest, `http('${world.web}')`)).toMatch(/^reached/);
    expect(await tryOne(guest, `tcp('${world.web}', 9000, b'echo')`)).toMatch(/^reached/);
  });

  it('a neighbour is out of reach, and so is what it looked up', async () => {
    expect(await neighbour.sh('curl -sS -o /dev/null -w "%{http_code}" http://127.0.0.1:7777/')).toBe('200');
    const address = /reached: ([\d.]+)/.exec(await tryOne(neighbour, `dns('only.neighbour.org')`))?.[1] ?? '';
    expect(address).toMatch(/^198\.1[89]\./);
    const link = [0, 1, 3, 4, 5, 6, 7].map((each) => [`192.0.0.${each}`, 7777] as const);
    await run(guest, {
      under: 'internet',
      leaves: 'nothing',
      attempts: [
        [
          'an address of a name that a neighbour looked up',
          `first("tcp('${address}', 80)", "tcp('${address}', 7777)")`,
        ],
        ...link.map(
          ([host, port]) => [`a neighbour on the link: ${host}`, `tcp('${host}', ${port})`, 'unheard'] as const,
        ),
        [
          'the service of this product',
          `first("tcp('${world.host}', ${stack.port})", "tcp('192.0.0.1', ${stack.port})")`,
        ],
      ],
    });
  });

  it('what is denied is not reached, by name, address or what a name means', async () => {
    await setPolicy(guest, denying);
    await run(guest, fixedBatches.denying);
    expect(await tryOne(guest, `http('one.shop.org', '/ok')`)).toMatch(/^reached/);
  });

  it('a refusal is told as an event', async () => {
    await setPolicy(neighbour, ONE);
    const events = await stack.client.environments.events(neighbour.id);
    const told = (async () => {
      for await (const { network } of events) if (network?.name === 'told.evil.org') return network;
      return undefined;
    })();
    expect(await tryOne(neighbour, `http('told.evil.org')`)).toMatch(/^refused/);
    expect(await told).toMatchObject({ verdict: 'refused', reason: 'not_allowed', protocol: 'dns' });
  });

  it('nothing is reached once it is none', async () => {
    await setPolicy(guest, { egress: 'none' });
    await run(guest, fixedBatches.closed);
    await setPolicy(guest, { egress: 'internet' });
  });

  it('a maximum of the tenant holds beside the policy, and for what is asked for', async () => {
    await stack.client.tenants.update('default', { network_max: ONE });
    await run(guest, stillHeld('by the tenant’s maximum'));
    await expect(setPolicy(guest, { egress: 'allowlist', allow: ['one.shop.org', 'evil.org'] })).rejects.toMatchObject({
      code: 'forbidden',
      details: { ceiling: 'tenant' },
    });
    await expect(
      stack.client.environments.create({ task_id: 'more', spec, network: { egress: 'internet' } }),
    ).rejects.toMatchObject({ code: 'forbidden' });
    attempts += 2;
    await stack.client.tenants.update('default', { network_max: null });
  });
});
