/**
 * What a network costs: create -> first command with a card and a policy beside one without, and HTTP requests through the gateway beside the same ones straight to the server, all in
 * a small internet of its own. Needs root.
 *
 *   node bench/network.mjs [N=30] [REQUESTS=3000]
 */
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { loadAssets } from '../apps/host-agent/dist/images/assets.js';
import { DEFAULT_NETWORK, gatewayConfig } from '../apps/host-agent/dist/network/config.js';
import { Gateway } from '../apps/host-agent/dist/network/gateway.js';
import { createLogger } from '../packages/runtime/dist/index.js';
import { SmallInternet, world } from '../packages/testing/dist/index.js';
import { localStack, quantile, report, timed, userHome } from './local-stack.mjs';

const n = Number(process.argv[2] ?? 30);
const requests = Number(process.argv[3] ?? 3_000);
const host = 'one.shop.org';
const shape = { cpus: 1, ram_mb: 256, storage_gb: 1 };
const policy = { egress: 'allowlist', allow: [{ host, ports: [{ from: 80, to: 80 }] }], deny: [] };
const run = promisify(execFile);
const client = fileURLToPath(new URL('network-client.mjs', import.meta.url));
const slotFile = (/** @type {string} */ name) =>
  fileURLToPath(new URL(`../apps/host-agent/network/${name}`, import.meta.url));

const internet = await SmallInternet.open();
try {
  const resolver = internet.resolver;
  const stack = await localStack({ FUSE_EGRESS_NETNS: internet.egressNamespace, FUSE_DNS_SERVERS: resolver });
  try {
    await starts(stack);
    await fromGuest(stack);
  } finally {
    await stack[Symbol.asyncDispose]();
  }
  await besideDirect();
} finally {
  await internet[Symbol.asyncDispose]();
}

/** @param {{hostUrl: string, hostToken: string}} stack @param {string} path @param {string} method @param {unknown} [body] */
async function call({ hostUrl, hostToken }, path, method, body) {
  const headers = {
    Authorization: `Bearer ${hostToken}`,
    ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
  };
  const init = { method, headers, body: body === undefined ? null : JSON.stringify(body) };
  const response = await fetch(`${hostUrl}${path}`, init);
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
  return response.json();
}

/** @param {string} id @param {object} more */
function orderOf(id, more) {
  return { image: 'base', shape, tag: 'bench', hostname: id, ...more };
}

function newVm() {
  return `bench-${randomBytes(4).toString('hex')}`;
}

/** @param {Parameters<typeof call>[0]} stack */
async function starts(stack) {
  /** @type {Record<string, number[]>} */
  const series = {
    'without a network': [],
    'with a network': [],
    'of that, its slot': [],
    'difference of each pair': [],
  };
  const exec = { argv: ['true'], timeout_ms: 60_000, max_log_bytes: 65_536 };
  const first = async (/** @type {object} */ more) => {
    const id = newVm();
    const { ms, value } = await timed(async () => {
      const vm = await call(stack, `/v1/vms/${id}`, 'PUT', orderOf(id, more));
      await call(stack, `/v1/vms/${id}/execs/one?wait_ms=10000`, 'PUT', exec);
      return vm;
    });
    await call(stack, `/v1/vms/${id}`, 'DELETE');
    return { ms, networkMs: value.timings.network_ms ?? 0 };
  };
  const networked = { network: { policies: [policy] } };
  for (let round = -3; round < n; round++) {
    // Each as often the first of the two as the other.
    const withFirst = round % 2 === 0 ? await first(networked) : undefined;
    const without = await first({});
    const withCard = withFirst ?? (await first(networked));
    if (round < 0) continue; // templates, and slots made ahead
    series['without a network']?.push(without.ms);
    series['with a network']?.push(withCard.ms);
    series['of that, its slot']?.push(withCard.networkMs);
    series['difference of each pair']?.push(withCard.ms - without.ms);
  }
  report(`create -> first command, ${shape.ram_mb} MiB`, series);
}

/** @param {Parameters<typeof call>[0]} stack */
async function fromGuest(stack) {
  const id = newVm();
  await call(stack, `/v1/vms/${id}`, 'PUT', orderOf(id, { network: { policies: [policy] } }));
  const source = (await readFile(client, 'utf8')).replaceAll('process.argv[2]', 'process.argv[1]');
  for (const keepAlive of [true, false]) {
    const order = { host, path: '/', resolver: '192.0.0.1', total: Math.ceil(requests / 10), atOnce: 4, keepAlive };
    const argv = ['node', '--input-type=module', '-e', source, JSON.stringify(order)];
    const name = `client-${keepAlive}`;
    await call(stack, `/v1/vms/${id}/execs/${name}`, 'PUT', { argv, timeout_ms: 120_000, max_log_bytes: 1_048_576 });
    while ((await call(stack, `/v1/vms/${id}/execs/${name}?wait_ms=60000`, 'GET')).state === 'running');
    const { stdout_base64 } = await call(stack, `/v1/vms/${id}/execs/${name}/result?limit=1000000`, 'GET');
    show(`from a guest, ${kind(keepAlive)}`, {
      'through the gateway': JSON.parse(Buffer.from(stdout_base64, 'base64').toString()),
    });
  }
  await call(stack, `/v1/vms/${id}`, 'DELETE');
}

/** A client of the host's in the place of a guest: the same namespace, rules and listeners, and a wire instead of a tap. */
async function besideDirect() {
  const directory = await mkdtemp(join(tmpdir(), 'fuse-bench-network-'));
  const { programs } = await loadAssets(join(userHome, 'assets', 'manifest.json'));
  if (programs.gateway === undefined) throw new Error('there is no gateway: npm run setup');
  const [slot, guest] = ['slot', 'guest'].map((name) => `bench-${name}-${process.pid}`);
  const network = { ...DEFAULT_NETWORK, egressNamespace: internet.egressNamespace, resolvers: [internet.resolver] };
  const log = createLogger({ name: 'bench', level: 'warn' });
  const gateway = new Gateway({
    directory: join(directory, 'gateway'),
    gatewayPath: programs.gateway.path,
    jailerPath: programs.jailer.path,
    egressNamespace: internet.egressNamespace,
    uid: 869_999,
    memory: { softMiB: network.gatewayMemoryMiB, groupName: 'fuse-gateway-bench', confinement: 'auto', log },
    config: () => gatewayConfig(network),
    log,
    onLost: () => {},
  });
  try {
    await wiredSlot(slot ?? '', guest ?? '', directory);
    await gateway.addSlot(slot ?? '');
    await gateway.attach('bench', () => ({ slot: slot ?? '', policies: [/** @type {any} */ (policy)] }));
    for (const atOnce of [1, 16])
      for (const keepAlive of [true, false]) {
        const order = { host, path: '/', total: requests, atOnce, keepAlive };
        const direct = await inNamespace(internet.egressNamespace, { ...order, address: world.web });
        const through = await inNamespace(guest ?? '', { ...order, resolver: '192.0.0.1' });
        show(`${atOnce} at once, ${kind(keepAlive)}`, {
          'straight to the server': direct,
          'through the gateway': through,
        });
      }
  } finally {
    await gateway.end();
    for (const name of [slot, guest]) await run('ip', ['netns', 'delete', name ?? '']).catch(() => {});
    await rm(directory, { recursive: true, force: true });
  }
}

/** @param {string} slot @param {string} guest @param {string} directory */
async function wiredSlot(slot, guest, directory) {
  const mac = '02:fc:00:00:00:02';
  const ip = (/** @type {string[]} */ ...args) => run('ip', args);
  for (const name of [slot, guest]) await ip('netns', 'add', name);
  await ip('netns', 'exec', slot, 'sysctl', '-q', '-p', slotFile('slot.sysctl'));
  await ip('-n', slot, 'link', 'add', 'tap0', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', guest);
  const links = (await readFile(slotFile('slot.ip'), 'utf8')).replace(/^tuntap .*$/m, '');
  await writeFile(join(directory, 'slot.ip'), links);
  await ip('-n', slot, '-batch', join(directory, 'slot.ip'));
  await ip('netns', 'exec', slot, 'nft', '-D', `guest_mac=${mac}`, '-f', slotFile('slot.nft'));
  for (const line of [
    `link set eth0 address ${mac} up`,
    'address add 192.0.0.2/29 dev eth0',
    'route add default via 192.0.0.1',
  ])
    await ip('-n', guest, ...line.split(' '));
  await ip('-n', slot, 'neighbour', 'replace', '192.0.0.2', 'lladdr', mac, 'dev', 'tap0', 'nud', 'permanent');
}

/** @param {string} namespace @param {object} order @returns {Promise<{requestsPerSecond: number, ms: number[]}>} */
async function inNamespace(namespace, order) {
  const args = ['netns', 'exec', namespace, process.execPath, client, JSON.stringify(order)];
  return JSON.parse((await run('ip', args, { maxBuffer: 64 * 1024 * 1024 })).stdout);
}

/** @param {boolean} keepAlive */
function kind(keepAlive) {
  return keepAlive ? 'connections kept' : 'a connection each';
}

/** @param {string} title @param {Record<string, {requestsPerSecond: number, ms: number[]}>} measured */
function show(title, measured) {
  process.stdout.write(`\n${title}\n`);
  for (const [name, { requestsPerSecond, ms }] of Object.entries(measured)) {
    const [p50, p95, p99] = [0.5, 0.95, 0.99].map((q) => quantile(ms, q).toFixed(2).padStart(8));
    const rate = requestsPerSecond.toFixed(0).padStart(7);
    process.stdout.write(
      `${name.padEnd(24)}${rate} requests/s   p50${p50}   p95${p95}   p99${p99} ms   N=${ms.length}\n`,
    );
  }
}
