/** The gateway's process: a session of its own in its namespace, which becomes a user of its own once it has its sockets. */
import { stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { AppError } from '@fuse/contract';
import { GATEWAY_PROTOCOL } from '@fuse/host-protocol';
import { sleep } from '@fuse/runtime';
import { startChild } from '../vmm/children.ts';
import { boundFile } from '../vmm/log-file.ts';
import { VmmProcess } from '../vmm/process.ts';
import type { GatewayClient } from './gateway-client.ts';
import { type GatewayMemory, makeGatewayGroup } from './gateway-group.ts';
import { namespacePathOf } from './slot.ts';

const LOG_FILE = 'gateway.log';
const LOG_BOUND_BYTES = 4_194_304;
const NSENTER = '/usr/bin/nsenter';
const READY_DEADLINE_MS = 10_000;
const ADOPTION_DEADLINE_MS = 2_000;
const READY_POLL_MS = 10;

export interface GatewayProcessOptions {
  /** Its sockets, its log and what names its process. */
  directory: string;
  gatewayPath: string;
  /** The network namespace that it connects from; undefined: the host's. */
  egressNamespace: string | undefined;
  uid: number;
  memory: GatewayMemory;
}

/** One that is there is kept if it speaks this protocol, from where connections are to leave now. */
export async function findOrStartGateway(
  options: GatewayProcessOptions,
  client: GatewayClient,
): Promise<{ process: VmmProcess; adopted: boolean }> {
  const found = await findGateway(options);
  if (found !== undefined) {
    if ((await isWhereItBelongs(found, options)) && (await answers(client, ADOPTION_DEADLINE_MS, found)))
      return { process: found, adopted: true };
    await found.kill();
  }
  return { process: await start(options, client), adopted: false };
}

export function findGateway({ directory, gatewayPath }: GatewayProcessOptions): Promise<VmmProcess | undefined> {
  return VmmProcess.adopt(directory, basename(gatewayPath));
}

export const boundGatewayLog = (directory: string): Promise<void> =>
  boundFile(join(directory, LOG_FILE), LOG_BOUND_BYTES);

async function start(options: GatewayProcessOptions, client: GatewayClient): Promise<VmmProcess> {
  const { directory, gatewayPath, egressNamespace, uid, memory } = options;
  const group = await makeGatewayGroup(memory);
  const args = [
    ...['--directory', '.', '--uid', String(uid), '--gid', String(uid), '--memory-mib', String(memory.softMiB)],
    ...(group === undefined ? [] : ['--cgroup', group]),
  ];
  const log = { path: join(directory, LOG_FILE), flags: 'a' } as const;
  const { pid } = await startChild({
    ...(egressNamespace === undefined
      ? { program: gatewayPath, args }
      : { program: NSENTER, args: [`--net=${namespacePathOf(egressNamespace)}`, '--', gatewayPath, ...args] }),
    ...{ cwd: directory, env: {}, session: true },
    stdio: ['ignore', log, log],
  });
  const process = await VmmProcess.follow({ directory, program: gatewayPath, pid });
  if (await answers(client, READY_DEADLINE_MS, process)) return process;
  await process.kill();
  throw new AppError('unavailable', 'the gateway did not start', { hint: `its log is ${join(directory, LOG_FILE)}` });
}

async function isWhereItBelongs({ pid }: VmmProcess, { egressNamespace }: GatewayProcessOptions): Promise<boolean> {
  const wanted = egressNamespace === undefined ? '/proc/self/ns/net' : namespacePathOf(egressNamespace);
  const [own, expected] = await Promise.all([stat(`/proc/${pid}/ns/net`), stat(wanted)]);
  return own.ino === expected.ino;
}

async function answers(client: GatewayClient, deadlineMs: number, process: VmmProcess): Promise<boolean> {
  let ended = false;
  void process.exited.then(() => {
    ended = true;
  });
  for (const from = performance.now(); performance.now() - from < deadlineMs && !ended; ) {
    const health = await client.health().catch(() => undefined);
    if (health !== undefined) return health.protocol === GATEWAY_PROTOCOL;
    await sleep(READY_POLL_MS);
  }
  return false;
}
