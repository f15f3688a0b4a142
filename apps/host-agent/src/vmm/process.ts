/**
 * A VMM's process, ours or adopted from an earlier host agent. It is named by pid, start time and the machine's boot: a pid that was
 * given to another process since is never signalled. Its identity lies in `vmm.json` in the VM's directory; between spawn and that write
 * only the working directory tells whose it is, which is why it is always the VM's directory, in a jail by another name.
 */
import { type BigIntStats, readdirSync, statSync } from 'node:fs';
import { readFile, rename, stat, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { AppError } from '@fuse/contract';
import { DeadlineError, sleep, withDeadline } from '@fuse/runtime';
import { z } from 'zod';
import { startChild } from './children.ts';
import type { Jail } from './jail.ts';
import { type ChildStdio, SpawnerLost, type StartedChild } from './spawner.ts';

const IDENTITY_FILE = 'vmm.json';
const ADOPTED_POLL_MS = 250;
const KILL_POLL_MS = 2;
const KILL_DEADLINE_MS = 15_000;
const REPORT_DEADLINE_MS = 2_000;

const ProcessIdentity = z.object({
  pid: z.number().int().positive(),
  /** Clock ticks between the machine's boot and the process's start. */
  startTicks: z.string(),
  bootId: z.string(),
  program: z.string(),
});
type ProcessIdentity = z.infer<typeof ProcessIdentity>;

export interface ProcessEnd {
  code: number | null;
  signal: string | null;
}

const UNKNOWN_END: ProcessEnd = { code: null, signal: null };
const KILLED_END: ProcessEnd = { code: null, signal: 'SIGKILL' };

let bootIdOnce: Promise<string> | undefined;
export function hostBootId(): Promise<string> {
  bootIdOnce ??= readFile('/proc/sys/kernel/random/boot_id', 'utf8').then((text) => text.trim());
  return bootIdOnce;
}

export class VmmProcess {
  readonly exited: Promise<ProcessEnd>;
  readonly #identity: ProcessIdentity;
  readonly #child: StartedChild | undefined;
  #end: (end: ProcessEnd) => void = () => {};
  /** Whether somebody will say how it ends. */
  #isReported: boolean;
  /** What is known of its end when nobody says. */
  #unreportedEnd = UNKNOWN_END;

  /** `child` when it is the spawner's, which reports how it ends; an adopted one is watched. */
  private constructor(identity: ProcessIdentity, child?: StartedChild) {
    this.#identity = identity;
    this.#child = child;
    this.exited = new Promise((resolve) => {
      this.#end = resolve;
    });
    this.#isReported = child !== undefined;
    if (child === undefined) this.#watch();
    else
      child.ended.then(
        ({ code, signal }) => this.#end({ code, signal }),
        () => {
          this.#isReported = false;
          this.#watch();
        },
      );
  }

  get pid(): number {
    return this.#identity.pid;
  }

  /** Starts `program` as a session of its own, so that it outlives us. */
  static async spawn(options: {
    program: string;
    args: readonly string[];
    directory: string;
    /** Descriptors from 0 on. */
    stdio: readonly Exclude<ChildStdio, 'pipe'>[];
    jail?: Jail;
    /** The name of `directory` in the jail. */
    jailDirectory?: string;
  }): Promise<VmmProcess> {
    const { program, args, directory, stdio, jail, jailDirectory: cwd = directory } = options;
    const child = await startChild({ program, args, cwd, env: {}, session: true, stdio, jail }).catch(
      async (cause: Error) => {
        if (cause instanceof SpawnerLost) await VmmProcess.#endOrphan(directory, program);
        throw new AppError('unavailable', `cannot start ${program}: ${cause.message}`, { cause });
      },
    );
    const status = await readStat(child.pid);
    if (status === undefined) throw new AppError('unavailable', `${basename(program)} ended at once`);
    const identity = { pid: child.pid, startTicks: status.startTicks, bootId: await hostBootId(), program };
    const started = new VmmProcess(identity, child);
    try {
      await writeIdentity(directory, identity);
    } catch (error) {
      await started.kill();
      throw error;
    }
    return started;
  }

  /** A process that a program which we started has left for us: nobody reports how it ends. */
  static async follow(options: { directory: string; program: string; pid: number }): Promise<VmmProcess> {
    const { directory, program, pid } = options;
    const stat = await readStat(pid);
    if (stat === undefined) throw new AppError('unavailable', `${basename(program)} ended at once`);
    const identity = { pid, startTicks: stat.startTicks, bootId: await hostBootId(), program };
    await writeIdentity(directory, identity);
    return new VmmProcess(identity);
  }

  /** The spawner may have started it before it could say so. */
  static async #endOrphan(directory: string, program: string): Promise<void> {
    const orphan = await findByDirectory(directory, basename(program));
    if (orphan !== undefined) await new VmmProcess(orphan).kill();
  }

  /**
   * The process of this directory if it still runs. `programName` guards against a recycled identity file. Before one is written, `isOfDirectory` tells whose a
   * process is: whoever works in the directory, unless given.
   */
  static async adopt(
    directory: string,
    programName: string,
    isOfDirectory?: (pid: string) => boolean,
  ): Promise<VmmProcess | undefined> {
    const identity = (await readIdentity(directory)) ?? (await findByDirectory(directory, programName, isOfDirectory));
    if (identity === undefined || basename(identity.program) !== programName) return undefined;
    if (!(await runs(identity)) || !(await hasProgram(identity.pid, programName))) return undefined;
    return new VmmProcess(identity);
  }

  /** It has started: what its jail allows for that alone is over. */
  up(): void {
    this.#child?.up();
  }

  /** SIGKILL, which ends stopped and hung processes too, then waits until the process is gone. */
  async kill(): Promise<void> {
    for (let waitedMs = 0; await runs(this.#identity); waitedMs += KILL_POLL_MS) {
      if (waitedMs >= KILL_DEADLINE_MS)
        throw new AppError('internal', `VMM process ${this.pid} did not end ${KILL_DEADLINE_MS} ms after SIGKILL`);
      if (waitedMs === 0) {
        this.#unreportedEnd = KILLED_END;
        signalIfThere(this.pid);
      }
      await sleep(KILL_POLL_MS);
    }
    try {
      if (this.#isReported) await withDeadline(REPORT_DEADLINE_MS, 'report of its end', () => this.exited);
    } catch (error) {
      if (!(error instanceof DeadlineError)) throw error; // a hung spawner: it is gone all the same
    }
    this.#end(this.#unreportedEnd);
  }

  /** Nobody tells us when it ends: looked at a few times a second, without keeping us alive. */
  #watch(): void {
    const again = () => void setTimeout(() => this.#watch(), ADOPTED_POLL_MS).unref();
    runs(this.#identity).then((running) => (running ? again() : this.#end(this.#unreportedEnd)), again);
  }
}

function signalIfThere(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

async function runs(identity: ProcessIdentity): Promise<boolean> {
  if (identity.bootId !== (await hostBootId())) return false;
  const status = await readStat(identity.pid);
  if (status === undefined || status.startTicks !== identity.startTicks) return false;
  // A zombie that is the last of its threads has given everything back and only waits for its parent.
  return !((status.state === 'Z' || status.state === 'X') && status.threads <= 1);
}

async function readStat(pid: number): Promise<{ state: string; threads: number; startTicks: string } | undefined> {
  let text: string;
  try {
    text = await readFile(`/proc/${pid}/stat`, 'utf8');
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'ENOENT' || code === 'ESRCH') return undefined;
    throw error;
  }
  // proc(5): pid (comm) state ppid …; comm may hold anything, so count from the last parenthesis.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  return { state: fields[0] ?? '', threads: Number(fields[17]), startTicks: fields[19] ?? '' };
}

async function hasProgram(pid: number, programName: string): Promise<boolean> {
  const cmdline = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
  return basename(cmdline.split('\0')[0] ?? '') === programName;
}

async function writeIdentity(directory: string, identity: ProcessIdentity): Promise<void> {
  const path = join(directory, IDENTITY_FILE);
  await writeFile(`${path}.new`, JSON.stringify(identity));
  await rename(`${path}.new`, path);
}

/** Whether a VMM was ever started in this directory. */
export const hasVmm = async (directory: string): Promise<boolean> => (await readIdentity(directory)) !== undefined;

async function readIdentity(directory: string): Promise<ProcessIdentity | undefined> {
  try {
    return ProcessIdentity.parse(JSON.parse(await readFile(join(directory, IDENTITY_FILE), 'utf8')));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw new AppError('internal', `${join(directory, IDENTITY_FILE)} is not readable`, { cause: error });
  }
}

/** A VMM whose host agent died before the identity file was written. Looked at synchronously: the links are in memory, and there are hundreds. */
async function findByDirectory(
  directory: string,
  programName: string,
  isOfDirectory?: (pid: string) => boolean,
): Promise<ProcessIdentity | undefined> {
  const wanted = await stat(directory, { bigint: true }).catch(() => undefined);
  if (wanted === undefined) return undefined;
  const isWanted = isOfDirectory ?? ((pid: string) => isIn(pid, wanted));
  for (const entry of readdirSync('/proc')) {
    if (!/^\d+$/.test(entry) || !isWanted(entry)) continue;
    const pid = Number(entry);
    if (!(await hasProgram(pid, programName))) continue;
    const status = await readStat(pid);
    if (status !== undefined)
      return { pid, startTicks: status.startTicks, bootId: await hostBootId(), program: programName };
  }
  return undefined;
}

/** False when it has ended, or is none of ours to look into. In a jail the directory's name is another: the directory itself is compared. */
function isIn(pid: string, directory: BigIntStats): boolean {
  try {
    const its = statSync(`/proc/${pid}/cwd`, { bigint: true });
    return its.ino === directory.ino && its.dev === directory.dev;
  } catch {
    return false;
  }
}
