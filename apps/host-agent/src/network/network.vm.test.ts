/** Networks of real VMs, through the gateway to servers of a small internet. */
import { readdir, readFile } from 'node:fs/promises';
import type { NetworkPolicy } from '@fuse/contract';
import type { VmNetworkReport } from '@fuse/host-protocol';
import { runningProcesses, SmallInternet, world } from '@fuse/testing';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { TestHost } from '../vms/test-host.ts';
import { TestProgram } from '../vms/test-program.ts';
import { DEFAULT_NETWORK } from './config.ts';
import { slotNames, slotPrefix } from './slot.ts';

const web = [
  { from: 80, to: 80 },
  { from: 443, to: 443 },
];
const allow = (...hosts: string[]): { policies: NetworkPolicy[] } => ({
  policies: [{ egress: 'allowlist', allow: hosts.map((each) => ({ host: each, ports: web })), deny: [] }],
});
const closed = allow();
const none: { policies: NetworkPolicy[] } = { policies: [{ egress: 'none', allow: [], deny: [] }] };

const MANY = 30;

let internet: SmallInternet;
let host: TestHost;
beforeAll(async () => {
  internet = await SmallInternet.open();
  const { egressNamespace, resolver } = internet;
  host = await TestHost.open({ network: { ...DEFAULT_NETWORK, egressNamespace, resolvers: [resolver] } });
});
afterAll(async () => {
  await host[Symbol.asyncDispose]();
  await internet[Symbol.asyncDispose]();
});

/** `-` when nothing came: what was served, in one word. */
async function get(vm: string, url: string): Promise<string> {
  const { stdout, exec } = await host.shell(vm, `curl -sS --max-time 20 --cacert /tmp/ca.pem ${url}`);
  return exec.exit?.exit_code === 0 ? (JSON.parse(stdout.toString()) as { host: string }).host : '-';
}
const setNetwork = (vm: string, network: object) => host.call<void>('PUT', `/v1/vms/${vm}/network`, network);
const report = (vm: string) => host.call<VmNetworkReport>('GET', `/v1/vms/${vm}/network`);
const trust = (vm: string) => host.shell(vm, `cat > /tmp/ca.pem <<'END'\n${internet.ca}\nEND`);
const cardOf = async (vm: string) => (await host.shell(vm, 'cat /sys/class/net/*/address')).stdout.toString();

async function networked(network: object, id?: string): Promise<string> {
  const vm = await host.create({ network: network as typeof none }, id);
  await trust(vm.id);
  return vm.id;
}

describe('a VM with a policy', () => {
  let vm: string;
  beforeAll(async () => {
    vm = await networked(allow('one.shop.org'));
  });
  afterAll(() => host.destroy(vm));

  it('reaches what is allowed by name, over HTTP and TLS, and nothing else', async () => {
    expect(await get(vm, 'http://one.shop.org/')).toBe('one.shop.org');
    expect(await get(vm, 'https://one.shop.org/')).toBe('one.shop.org');
    await internet.forget();
    for (const url of [
      'http://two.shop.org/',
      `http://${world.web}/`,
      `http://${world.metadata}/`,
      'http://192.0.0.1/',
    ])
      expect(await get(vm, url), url).toBe('-');
    expect(await internet.connections()).toEqual([]);
    expect(await internet.queries()).toEqual([]);
  });

  it('has one card, of IPv4 alone, and a resolver', async () => {
    const { stdout } = await host.shell(vm, 'ls /sys/class/net; ip -o address show dev eth0; cat /etc/resolv.conf');
    expect(stdout.toString()).toMatch(/^eth0\nlo\n.* inet 192\.0\.0\.2\/29 .*\nnameserver 192\.0\.0\.1\n$/);
  });

  it('is told at once what is refused', async () => {
    const script = `
import socket
def udp(port):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(20); s.connect(('${world.web}', port)); s.send(b'x')
    try: s.recv(1); return 'answered'
    except ConnectionRefusedError: return 'refused'
def ping():
    s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); s.settimeout(20); s.connect(('${world.web}', 0)); s.send(bytes([8, 0, 247, 255, 0, 0, 0, 0]))
    try: s.recv(1); return 'answered'
    except OSError as e: return 'timed out' if e.errno is None else 'refused'
print(udp(123), udp(443), ping())`;
    const { stdout } = await host.run(vm, ['python3', '-c', script]);
    expect(stdout.toString()).toBe('refused refused refused\n');
    const { dropped_packets } = await report(vm);
    expect(dropped_packets).toMatchObject({ other_udp: 2, any_icmp: 1 });
  });

  it('cannot have the kernel remember what begins in the middle and is answered by nobody', async () => {
    const script = `
import socket, struct
def sum16(data): return sum(struct.unpack('!%dH' % (len(data) // 2), data))
def folded(total):
    while total >> 16: total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)
# An acknowledgement with a signature (RFC 2385) that the listener does not expect, and passes over.
options = bytes([19, 18]) + bytes(16) + bytes([1, 1])
for sport in range(20000, 20500):
    header = lambda sum: struct.pack('!HHIIBBHHH', sport, 53, 1, 1, 10 << 4, 0x10, 1000, sum, 0) + options
    pseudo = socket.inet_aton('192.0.0.2') + socket.inet_aton('${world.web}') + struct.pack('!HH', 6, 40)
    s.sendto(header(folded(sum16(pseudo + header(0)))), ('${world.web}', 0))`;
    const { exec, stderr } = await host.run(vm, ['python3', '-c', script]);
    expect(exec.exit?.exit_code, stderr.toString()).toBe(0);
    await vi.waitFor(async () =>
      expect((await report(vm)).dropped_packets?.look_up_flood ?? 0).toBeGreaterThanOrEqual(500),
    );
  });

  it('can be nobody else: what its card sends under another name is dropped and counted', async () => {
    const mac = (await cardOf(vm)).split('\n')[0] ?? '';
    const script = `
import os, socket
def send(family, to, source=None):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    if source: s.bind(source)
    s.sendto(b'x', to)
def ip(line): assert os.system('ip ' + line) == 0, line
via = ('${world.web}', 53)
ip('address add 192.0.0.3/29 dev eth0'); send(socket.AF_INET, via, ('192.0.0.3', 0)); ip('address delete 192.0.0.3/29 dev eth0')
send(socket.AF_INET, ('255.255.255.255', 67), ('192.0.0.2', 68))
send(socket.AF_INET, ('192.0.0.7', 53))
open('/proc/sys/net/ipv6/conf/eth0/disable_ipv6', 'w').write('0'); ip('address add fe80::5/64 dev eth0 nodad')
send(socket.AF_INET6, ('ff02::2', 53, 0, socket.if_nametoindex('eth0')))
open('/proc/sys/net/ipv6/conf/eth0/disable_ipv6', 'w').write('1')
ip('link set dev eth0 address 02:fc:00:00:00:99'); send(socket.AF_INET, via); ip('link set dev eth0 address ${mac}')`;
    const { exec, stderr } = await host.run(vm, ['python3', '-c', script]);
    expect(exec.exit?.exit_code, stderr.toString()).toBe(0);
    await vi.waitFor(async () => {
      const { dropped_packets = {} } = await report(vm);
      for (const reason of ['spoofed_address', 'any_dhcp', 'to_nobody', 'any_ipv6', 'spoofed_mac'])
        expect(dropped_packets[reason], reason).toBeGreaterThan(0);
    }, 10_000);
    expect(await get(vm, 'http://one.shop.org/')).toBe('one.shop.org');
  });

  it('says what passed and what did not', async () => {
    const { policies, connections, allowed_count, refused_count, received_bytes } = await report(vm);
    expect(policies).toEqual(allow('one.shop.org').policies);
    expect(allowed_count).toBeGreaterThanOrEqual(2);
    expect(refused_count).toBeGreaterThanOrEqual(3);
    expect(received_bytes).toBeGreaterThan(100);
    expect(connections).toContainEqual(
      expect.objectContaining({ name: 'two.shop.org', verdict: 'refused', reason: 'not_allowed' }),
    );
    await vi.waitFor(async () => {
      const { vms } = await host.list();
      const shown = vms.find(({ id }) => id === vm)?.network;
      expect(shown?.refused_seq).toBeGreaterThan(0);
      expect(shown?.latest_refused.map(({ name }) => name)).toContain('two.shop.org');
    }, 10_000);
  });

  it('is under another policy from the moment that is set, which cuts what it does not allow', async () => {
    const slow = await host.startExec(vm, ['curl', '-sS', '--no-buffer', 'http://one.shop.org/slow']);
    await vi.waitFor(async () => expect(await host.log(vm, slow.id)).not.toHaveLength(0), 10_000);
    await setNetwork(vm, closed);
    expect((await host.endOf(vm, slow.id)).exit?.exit_code).not.toBe(0);
    expect(await get(vm, 'http://one.shop.org/')).toBe('-');
    await setNetwork(vm, allow('*.shop.org'));
    expect(await get(vm, 'http://two.shop.org/')).toBe('two.shop.org');
    await setNetwork(vm, none);
    expect(await get(vm, 'http://two.shop.org/')).toBe('-');
  });

  it('keeps policy and counts through pause, resume, a restore in place and a fork', async () => {
    await setNetwork(vm, allow('two.shop.org'));
    const expectSame = async (id: string) => {
      expect(await get(id, 'http://two.shop.org/')).toBe('two.shop.org');
      expect(await get(id, 'http://one.shop.org/')).toBe('-');
    };
    await expectSame(vm);
    const before = await report(vm);
    await host.pause(vm);
    const paused = await report(vm);
    expect(paused.allowed_count).toBe(before.allowed_count);
    expect(paused.connections.length).toBeGreaterThan(0);
    expect(await slotsLeased()).toBe(0);
    await setNetwork(vm, allow('two.shop.org', 'evil.org'));
    await host.resume(vm);
    await expectSame(vm);
    expect(await get(vm, 'http://evil.org/')).toBe('evil.org');
    expect((await report(vm)).allowed_count).toBeGreaterThan(before.allowed_count);

    const snapshot = await host.snapshot(vm);
    expect(snapshot.network_card).toBe(true);
    await host.restore(vm, { snapshot_id: snapshot.id, restore_id: 'again' });
    await expectSame(vm);
    const fork = await host.fork(snapshot.id, { network: allow('two.shop.org') });
    await expectSame(fork.id);
    expect(await cardOf(fork.id)).not.toBe(await cardOf(vm));
    await host.destroy(fork.id);
    const without = await host.fork(snapshot.id);
    expect(await get(without.id, 'http://two.shop.org/')).toBe('-');
    await setNetwork(without.id, allow('two.shop.org'));
    await expectSame(without.id);
    await host.destroy(without.id);
    await host.deleteSnapshot(snapshot.id);
  });

  it('is refused and cut while the gateway is gone, and served by the next one', async () => {
    const gateway = await gatewayPid();
    process.kill(gateway, 'SIGKILL');
    await vi.waitFor(async () => expect(await get(vm, 'http://two.shop.org/')).toBe('two.shop.org'), 20_000);
    expect(await get(vm, 'http://one.shop.org/')).toBe('-');
    expect(await gatewayPid()).not.toBe(gateway);
  });
});

describe('a VM without a network', () => {
  it('has no card, and cannot get one', async () => {
    for (const order of [{}, { network: none }]) {
      const { id } = await host.create(order);
      expect((await host.shell(id, 'ls /sys/class/net')).stdout.toString()).toBe('lo\n');
      await expect(setNetwork(id, closed)).rejects.toMatchObject({
        code: 'conflict',
        details: { reason: 'no_network_card' },
      });
      await setNetwork(id, none);
      expect(await report(id)).toMatchObject({ allowed_count: 0, connections: [] });
      await host.destroy(id);
    }
  });

  it('leaves a snapshot that gives nobody a network, unless it is started from its disk', async () => {
    const { id } = await host.create();
    await host.shell(id, 'echo kept > /root/file; sync');
    const snapshot = await host.snapshot(id);
    await expect(host.fork(snapshot.id, { network: closed })).rejects.toMatchObject({
      details: { reason: 'no_network_card' },
    });
    const fork = await host.fork(snapshot.id, {
      network: allow('one.shop.org'),
      seed: { snapshot_id: snapshot.id, fallback: 'disk' },
    });
    expect((await host.shell(fork.id, 'cat /root/file')).stdout.toString()).toBe('kept\n');
    await trust(fork.id);
    expect(await get(fork.id, 'http://one.shop.org/')).toBe('one.shop.org');
    for (const each of [fork.id, id]) await host.destroy(each);
    await host.deleteSnapshot(snapshot.id);
  });
});

describe('a host that lacks what a network takes', () => {
  it('says what, starts VMs without a network, and refuses others', async () => {
    const network = { ...DEFAULT_NETWORK, egressNamespace: 'is-not-there' };
    await using lacking = await TestHost.open({ network });
    expect(await lacking.call('GET', '/v1/capacity')).toMatchObject({
      no_network: expect.stringContaining('is-not-there') as string,
    });
    await expect(lacking.create({ network: closed })).rejects.toMatchObject({
      status: 503,
      details: { reason: 'no_network' },
    });
    await lacking.create({ network: none });
  });
});

describe('many', () => {
  it('are each in a slot of their own, and leave nothing', async () => {
    const cards = new Set<string>();
    for (let round = 0; round < MANY / 3; round++) {
      const ids = await Promise.all([1, 2, 3].map((each) => host.create({ network: closed }, `many-${round}-${each}`)));
      for (const { id } of ids) cards.add(await cardOf(id));
      await Promise.all(ids.map(({ id }) => host.destroy(id)));
    }
    expect(cards.size).toBe(MANY);
    expect(await slotsLeased()).toBe(0);
    expect(await gatewayDescriptors()).toBeLessThan(60); // three for each slot of the pool, and its own
  });
});

describe('a host agent that is killed', () => {
  it('leaves its VMs under their policies, and the next one takes them up', async () => {
    await host.stop();
    const program = new TestProgram(host);
    await program.start();
    const vm = await networked(allow('one.shop.org'));
    const gateway = await gatewayPid();
    await program.kill();
    await program.start();
    expect(await gatewayPid()).toBe(gateway);
    const prefix = await slotPrefix(`${host.directory}/host`);
    await vi.waitFor(async () => expect(await slotNames(prefix)).toHaveLength(1), 10_000); // those that were ready are gone
    expect(await get(vm, 'http://one.shop.org/')).toBe('one.shop.org');
    expect(await get(vm, 'http://two.shop.org/')).toBe('-');
    await setNetwork(vm, allow('two.shop.org'));
    expect(await get(vm, 'http://two.shop.org/')).toBe('two.shop.org');
    expect(await get(vm, 'http://one.shop.org/')).toBe('-');
    await program.kill();
    process.kill(await gatewayPid(), 'SIGKILL');
    await program.start();
    await vi.waitFor(async () => expect(await get(vm, 'http://two.shop.org/')).toBe('two.shop.org'), 20_000);
    expect(await slotsLeased()).toBe(1);
    expect(await gatewayDescriptors()).toBeLessThan(60);
    await host.destroy(vm);
    await program.kill();
    await host.start();
    host.useUrl(host.agent.url);
  });
});

it('leaves no namespace, gateway or socket behind', async () => {
  await host.agent.destroyAllVms();
  await host.stop();
  const prefix = await slotPrefix(`${host.directory}/host`);
  expect(await slotNames(prefix)).toEqual([]);
  const processes = (await runningProcesses()).filter(({ command }) => command.includes(prefix));
  expect(processes).toEqual([]);
  await host.start();
});

/** Without those that are ready for the next VM. */
async function slotsLeased(): Promise<number> {
  const { vms } = await host.list();
  const slots = await Promise.all(
    vms.map(async ({ id }) => JSON.parse(await readFile(`${host.vmsDirectory}/${id}/vm.json`, 'utf8')) as object),
  );
  return slots.filter((record) => 'slot' in record).length;
}

async function gatewayDescriptors(): Promise<number> {
  return (await readdir(`/proc/${await gatewayPid()}/fd`)).length;
}

async function gatewayPid(): Promise<number> {
  const identity = await readFile(`${host.directory}/host/gateway/vmm.json`, 'utf8');
  return (JSON.parse(identity) as { pid: number }).pid;
}
