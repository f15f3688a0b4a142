/** Two hundred VMs with a network come and go, several at a time: of none is anything left, on the machine, in the host agent or in the gateway. */
import { createHash } from 'node:crypto';
import { readdir, readFile, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { heldResources, runningProcesses, SmallInternet } from '@fuse/testing';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { LocalStack } from '../support/local-stack.ts';

const WARM_UP = 8;
const LIVES = 200;
const AT_ONCE = 4;
/** Ready for the next VMs. */
const SLOTS_READY = 4;
/** Descriptors of connections that are kept for the next call. */
const KEPT_ALIVE = 12;
const CGROUPS = '/sys/fs/cgroup';
/** Of this stack alone: by its users its VMMs, their control groups and the gateway are told from those of others on this machine. */
const UID_BASE = 940_000;

let internet: SmallInternet;
let stack: LocalStack;
beforeAll(async () => {
  internet = await SmallInternet.open();
  stack = await LocalStack.up({
    FUSE_HOST_CPUS: '16',
    FUSE_HOST_RAM_MB: '2048',
    FUSE_EGRESS_NETNS: internet.egressNamespace,
    FUSE_DNS_SERVERS: internet.resolver,
    FUSE_NETWORK_POOL: String(SLOTS_READY),
    FUSE_VMM_UID_BASE: String(UID_BASE),
  });
}, 180_000);
afterAll(async () => {
  await stack?.[Symbol.asyncDispose]();
  await internet?.[Symbol.asyncDispose]();
}, 120_000);

async function create(task_id: string): Promise<string> {
  const network = { egress: 'allowlist' as const, allow: ['one.shop.org'] };
  const spec = { cpus: 1, ram_mb: 256, storage_gb: 1 };
  return (await stack.client.environments.create({ task_id, spec, network })).id;
}

/** Each looks up a name, and leaves an open connection behind. */
async function live(task_id: string): Promise<void> {
  const { environments } = stack.client;
  const id = await create(task_id);
  const shell =
    'curl -sSN http://one.shop.org/slow > /tmp/slow 2>&1 & for _ in $(seq 300); do [ -s /tmp/slow ] && exit 0; sleep 0.1; done; exit 1';
  expect(await environments.exec(id, { shell }), id).toMatchObject({ exit_code: 0 });
  await environments.destroy(id);
}

async function lives(count: number, name: string): Promise<void> {
  let next = 0;
  const some = async () => {
    for (let at = next++; at < count; at = next++) await live(`${name}-${at}`);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, some));
}

async function gatewayPid(): Promise<number> {
  const identity = await readFile(join(stack.home, 'host', 'gateway', 'vmm.json'), 'utf8');
  return (JSON.parse(identity) as { pid: number }).pid; // the host agent's own record
}

const names = async (directory: string) => (await readdir(directory).catch((): string[] => [])).sort();
const isOurs = (uid: number) => uid >= UID_BASE - 1 && uid < UID_BASE + 10_000;
const ofOurUsers = (all: readonly string[]) => all.filter((name) => isOurs(Number(/\d+$/.exec(name)?.[0])));

/** Processes of our users: `uid program`. */
async function processes(): Promise<string[]> {
  const statuses = await Promise.all(
    (await names('/proc')).map((pid) => readFile(`/proc/${pid}/status`, 'utf8').catch(() => '')), // ended, or none
  );
  const found = statuses.map((status) => /^Name:\s+(?<name>\S+).*?^Uid:\s+(?<uid>\d+)/ms.exec(status)?.groups);
  return found.flatMap((each) => (each !== undefined && isOurs(Number(each.uid)) ? [`${each.uid} ${each.name}`] : []));
}

/** Names of slots begin with one of the data directory's own. */
async function slots(): Promise<number> {
  const digest = createHash('sha256')
    .update(await realpath(join(stack.home, 'host')))
    .digest('hex');
  return (await names('/run/netns')).filter((name) => name.startsWith(`fuse-${digest.slice(0, 8)}-`)).length;
}

async function left() {
  const [service, gateway] = [await heldResources(stack.pid), await heldResources(await gatewayPid())];
  const groups = ['', ...(await names(CGROUPS))].map((hierarchy) => names(join(CGROUPS, hierarchy, 'fuse')));
  return {
    links: (await names('/sys/class/net')).filter((name) => name.startsWith('tap')),
    slots: await slots(),
    groups: ofOurUsers((await Promise.all(groups)).flat()),
    uids: ofOurUsers(await names('/run/fuse/vmm-uids')),
    vms: await names(join(stack.home, 'host', 'vms')),
    processes: await processes(),
    commands: (await runningProcesses()).filter(({ command }) => command.includes(stack.home)).length,
    children: service.processes,
    mounts: service.mounts,
    gatewayDescriptors: gateway.descriptors,
    descriptors: service.descriptors,
  };
}

const gatewayProcess = `${UID_BASE - 1} fuse-gateway`;

it('what one VM takes is seen', async () => {
  const id = await create('one');
  const { groups, uids, processes: running, vms } = await left();
  expect([uids.length, vms.length]).toEqual([1, 1]);
  expect(groups.length).toBeGreaterThan(0);
  expect(running).toHaveLength(2);
  expect(running).toEqual(expect.arrayContaining([gatewayProcess, expect.stringMatching(`^${uids[0]} qemu`)]));
  await stack.client.environments.destroy(id);
});

it(`leaves nothing of ${LIVES} VMs`, { timeout: 900_000 }, async () => {
  await lives(WARM_UP, 'before');
  await expect.poll(left, { timeout: 60_000 }).toMatchObject({ vms: [], slots: SLOTS_READY });
  const { descriptors, gatewayDescriptors, ...before } = await left();
  // The gateway, and the slots that are ready for the next ones.
  expect(before).toMatchObject({ groups: [], uids: [], processes: [gatewayProcess] });
  await lives(LIVES, 'life');
  await expect
    .poll(
      async () => {
        const { descriptors: _, gatewayDescriptors: __, ...after } = await left();
        return after;
      },
      { timeout: 60_000 },
    )
    .toEqual(before);
  await expect
    .poll(async () => (await left()).gatewayDescriptors, { timeout: 60_000 })
    .toBeLessThanOrEqual(gatewayDescriptors);
  await expect
    .poll(async () => (await left()).descriptors, { timeout: 60_000 })
    .toBeLessThanOrEqual(descriptors + KEPT_ALIVE);
});
