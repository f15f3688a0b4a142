/** From nothing to a Firecracker in its jail that waits to be told what its VM is. */
import { constants, writeFileSync } from 'node:fs';
import { open, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { AppError } from '@fuse/contract';
import { type Logger, withDeadline } from '@fuse/runtime';
import type { Cell, Confinement } from '../../confinement/confinement.ts';
import { limitsOf } from '../../confinement/limits.ts';
import { startChild } from '../children.ts';
import type { MachineShape } from '../driver.ts';
import { readTail } from '../log-file.ts';
import { VmmProcess } from '../process.ts';
import { SpawnerLost } from '../spawner.ts';
import { Chroot, type Inside, inside } from './chroot.ts';
import { makeCounterPipe } from './counters.ts';
import { COUNTERS_FILE, FirecrackerVmm, LOG_FILE } from './firecracker-vmm.ts';
import { jailerCommand } from './jailer-command.ts';
import type { FirecrackerPrograms } from './programs.ts';
import { type MachineRecord, writeRecord } from './record.ts';

const JAILER_DEADLINE_MS = 15_000;
const MAX_PID_LENGTH = 10;
const MIB = 1_048_576;
/** Beside the largest of its files. */
const FILE_MARGIN_BYTES = 64 * MIB;

export interface StartOrder {
  directory: string;
  shape: MachineShape;
  networkNamespacePath: string | undefined;
  record: Omit<MachineRecord, 'programName' | 'memoryMiB'>;
  /** What it reads, and what is its own while it lives. */
  links: readonly { path: string; name: Inside; access: 'readable' | 'owned' }[];
}

export interface StartMeans {
  programs: FirecrackerPrograms;
  confinement: Confinement;
  log: Logger;
}

/** On failure nothing of it is left but what lies in its directory. */
export async function startFirecracker(
  means: StartMeans,
  order: StartOrder,
  signal?: AbortSignal,
): Promise<FirecrackerVmm> {
  signal?.throwIfAborted();
  const { directory, shape } = order;
  const programName = basename(means.programs.firecracker);
  const record = { ...order.record, programName, memoryMiB: shape.memoryMiB };
  await writeRecord(directory, record);
  const largestFileBytes = (await largestOwned(order)) + FILE_MARGIN_BYTES;
  const limits = limitsOf(shape, { accelerator: 'kvm', largestFileBytes });
  const cell = means.confinement.take(directory, limits);
  const chroot = new Chroot(directory, programName);
  try {
    await furnish(chroot, cell, order);
    const process = await startJailed(means, { chroot, cell, order, limits }, signal);
    return new FirecrackerVmm({ directory, process, cell, chroot, record, log: means.log });
  } catch (error) {
    await cell.end();
    throw error;
  }
}

async function largestOwned({ links, shape }: StartOrder): Promise<number> {
  const owned = links.filter(({ access }) => access === 'owned');
  const sizes = await Promise.all(owned.map(async ({ path }) => (await stat(path)).size));
  return Math.max(shape.memoryMiB * MIB, ...sizes);
}

async function furnish(chroot: Chroot, cell: Cell, { directory, links }: StartOrder): Promise<void> {
  const counters = join(directory, COUNTERS_FILE);
  await chroot.create();
  await makeCounterPipe(counters);
  const all = [...links, { path: counters, name: inside.metrics, access: 'owned' as const }];
  for (const { path, name, access } of all) await chroot.link(path, name, access);
  cell.own(all.filter(({ access }) => access === 'owned').map(({ path }) => path));
}

async function startJailed(
  { programs }: StartMeans,
  {
    chroot,
    cell,
    order,
    limits,
  }: { chroot: Chroot; cell: Cell; order: StartOrder; limits: ReturnType<typeof limitsOf> },
  signal?: AbortSignal,
): Promise<VmmProcess> {
  const { directory, networkNamespacePath } = order;
  const { openFiles, fileSizeBytes } = limits;
  const command = jailerCommand({ programs, chroot, uid: cell.uid, networkNamespacePath, openFiles, fileSizeBytes });
  const logPath = join(directory, LOG_FILE);
  const output = { path: logPath, flags: 'a' } as const;
  const program = basename(programs.firecracker);
  const endLeft = async () => {
    await (await VmmProcess.adopt(directory, program, (pid) => chroot.isRootOf(pid)))?.kill();
  };
  try {
    const jailer = await startChild({
      ...command,
      cwd: directory,
      env: {},
      session: true,
      stdio: ['ignore', output, output],
    });
    const { code } = await withDeadline(JAILER_DEADLINE_MS, 'the jailer', () => jailer.ended, signal);
    if (code !== 0) throw new Error((await readTail(logPath)).trim() || `the jailer ended with ${code}`);
    const pid = await leftProcess(chroot, program);
    // From here on what it takes is counted as its VM's; it has taken next to nothing.
    for (const path of cell.cgroup.procsPaths) writeFileSync(path, String(pid));
    // It is no more important than others when memory runs out, as the host agent may be.
    writeFileSync(`/proc/${pid}/oom_score_adj`, '0');
    return await VmmProcess.follow({ directory, program: programs.firecracker, pid });
  } catch (cause) {
    await endLeft();
    signal?.throwIfAborted();
    if (cause instanceof SpawnerLost) throw new AppError('unavailable', 'the spawner ended', { cause });
    throw new AppError('unavailable', `cannot start Firecracker: ${cause instanceof Error ? cause.message : cause}`, {
      cause,
    });
  }
}

/** The jailer writes down whom it started. */
async function leftProcess(chroot: Chroot, program: string): Promise<number> {
  const handle = await open(join(chroot.rootPath, `${program}.pid`), constants.O_RDONLY | constants.O_NOFOLLOW);
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(MAX_PID_LENGTH), 0, MAX_PID_LENGTH, 0);
    const pid = buffer.toString('latin1', 0, bytesRead);
    if (!/^[1-9]\d*$/.test(pid) || !chroot.isRootOf(pid)) throw new Error('the jailer left no process');
    return Number(pid);
  } finally {
    await handle.close();
  }
}
