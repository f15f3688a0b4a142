/**
 * Each VMM of this host in a cell of its own: an unprivileged user that no other live VMM of the machine has, and a control group with the limits of its VM. What else confines it is
 * made by the jailer, of which vmm/jail.ts tells.
 *
 * A cell belongs to a machine's directory, where `cell.json` names it: taken before the VMM is started, given back once it is gone, by whoever finds that out, be it the host agent
 * after the one that started it. What nobody will find any more is swept.
 */
import { lchownSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError } from '@fuse/contract';
import type { Logger } from '@fuse/runtime';
import { z } from 'zod';
import { tryLock } from '../templates/process-lock.ts';
import { worksInDeletedDirectory } from '../vmm/deleted-directory.ts';
import { hostBootId } from '../vmm/process.ts';
import { Cgroup, prepareParents, removeEmptyGroups } from './cgroup.ts';
import { type Hierarchy, hostHierarchies, missingControllers, ownProcsPaths } from './hierarchies.ts';
import type { Limits } from './limits.ts';
import { DEFAULT_UID_BASE, UidSlots } from './uid-slots.ts';

const UIDS_DIRECTORY = '/run/fuse/vmm-uids';
const CELL_FILE = 'cell.json';
/** A VMM is in its group well before. */
const START_MS = 60_000;

export const confinementModes = ['auto', 'required', 'off'] as const;
export type ConfinementMode = (typeof confinementModes)[number];

export interface ConfinementOptions {
  mode: ConfinementMode;
  uidBase: number;
}

export const DEFAULT_CONFINEMENT: ConfinementOptions = { mode: 'auto', uidBase: DEFAULT_UID_BASE };

const CellRecord = z.object({
  uid: z.number().int().positive(),
  /** What is its user's while it lives. */
  ownedPaths: z.array(z.string()),
});

export interface CellEnd {
  /** The kernel killed it because it had reached its memory limit. */
  outOfMemory: boolean;
}

export interface Cell {
  readonly uid: number;
  readonly cgroup: Cgroup;
  /** The files that were given to its user. */
  readonly ownedPaths: readonly string[];
  /** Gives these files to its user, until it ends. */
  own(paths: readonly string[]): void;
  /** Its VMM is gone, or was never there: everything of the cell is given back. Idempotent. */
  end(): Promise<CellEnd>;
}

export class Confinement {
  readonly #slots: UidSlots;
  readonly #hierarchies: readonly Hierarchy[];
  readonly #bootId: string;
  readonly #log: Logger;
  readonly #cells = new Map<string, OpenCell>();
  readonly #ownProcs: readonly string[];
  #changing = false;

  private constructor(slots: UidSlots, hierarchies: readonly Hierarchy[], bootId: string, log: Logger) {
    this.#slots = slots;
    this.#hierarchies = hierarchies;
    this.#bootId = bootId;
    this.#log = log;
    this.#ownProcs = ownProcsPaths(hierarchies);
  }

  /** Undefined where VMMs are not confined: it is off, or cannot be here and need not be. */
  static async open({ mode, uidBase }: ConfinementOptions, log: Logger): Promise<Confinement | undefined> {
    if (mode === 'off') {
      log.warn('VMMs are not confined: FUSE_CONFINEMENT is off');
      return undefined;
    }
    try {
      const hierarchies = usableHierarchies();
      const bootId = await hostBootId();
      const slots = new UidSlots({ directory: UIDS_DIRECTORY, base: uidBase, bootId });
      const confinement = new Confinement(slots, hierarchies, bootId, log);
      await confinement.#sweep();
      return confinement;
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : String(cause);
      if (mode === 'required')
        throw new AppError('unavailable', `VMMs cannot be confined here: ${why}`, {
          cause,
          hint: 'run the host agent as root on a host with control groups for memory, cpu and pids',
        });
      log.error(
        { reason: why },
        'VMMs ARE NOT CONFINED: a guest that breaks out of its VMM has what the host agent has',
      );
      return undefined;
    }
  }

  /**
   * A VMM will be started in some milliseconds. The first process that changes its control group after a pause waits for all processors to notice (a grace period of RCU, 5 to 20 ms); those
   * that follow do not. So something changes to the group that it is in already, while the VM's disk is made.
   */
  expectStart(): void {
    const [procsPath] = this.#ownProcs;
    if (procsPath === undefined || this.#changing) return;
    this.#changing = true;
    writeFile(procsPath, '0')
      .catch((error: unknown) => this.#log.debug({ err: error }, 'control groups not warmed up'))
      .finally(() => {
        this.#changing = false;
      });
  }

  take(directory: string, limits: Limits): Cell {
    for (;;) {
      const uid = this.#slots.take(directory);
      const cell = new OpenCell({ uid, ownedPaths: [] }, directory, this.#parts(directory));
      // A group that somebody else has made, and perhaps uses: its user is not free, whatever the link says.
      if (cell.cgroup.exists) {
        this.#slots.free(uid, directory);
        continue;
      }
      try {
        cell.save();
        cell.cgroup.create(limits);
      } catch (error) {
        void cell.end().catch((cause: unknown) => this.#log.error({ err: cause }, 'cell not given back'));
        throw error;
      }
      this.#cells.set(directory, cell);
      return cell;
    }
  }

  /** The cell of the machine in this directory, if it has one. */
  find(directory: string): Cell | undefined {
    const open = this.#cells.get(directory);
    if (open !== undefined) return open;
    const record = readRecord(directory);
    if (record === undefined || !this.#slots.isOf(record.uid, directory)) return undefined;
    const cell = new OpenCell(record, directory, this.#parts(directory));
    this.#cells.set(directory, cell);
    return cell;
  }

  #parts(directory: string): CellParts {
    return {
      slots: this.#slots,
      hierarchies: this.#hierarchies,
      onEnd: (cell) => {
        if (this.#cells.get(directory) === cell) this.#cells.delete(directory);
      },
    };
  }

  /** Cells whose machine nobody can find any more: of another boot, with a directory that was deleted, or with nothing in their group. */
  async #sweep(): Promise<void> {
    const held = await tryLock('fuse cells');
    if (held === undefined) return; // somebody is at it
    try {
      for (const { uid, owner, bootId, takenAtMs } of this.#slots.taken()) {
        const cgroup = new Cgroup(this.#hierarchies, cgroupName(uid));
        const isGone =
          bootId !== this.#bootId || (!(await isThere(owner)) && cgroup.pids.every(worksInDeletedDirectory));
        const isEmpty = Date.now() - takenAtMs > START_MS && cgroup.pids.length === 0;
        if (!isGone && !isEmpty) continue;
        await cgroup.remove();
        this.#slots.free(uid, owner);
        this.#log.info({ uid, owner }, 'cell of a VMM that is gone swept');
      }
      removeEmptyGroups(this.#hierarchies, (name) => this.#slots.taken().some(({ uid }) => cgroupName(uid) === name));
    } finally {
      await held[Symbol.asyncDispose]();
    }
  }
}

interface CellParts {
  slots: UidSlots;
  hierarchies: readonly Hierarchy[];
  onEnd: (cell: OpenCell) => void;
}

class OpenCell implements Cell {
  readonly cgroup: Cgroup;
  readonly #record: z.infer<typeof CellRecord>;
  readonly #directory: string;
  readonly #parts: CellParts;
  #ending: Promise<CellEnd> | undefined;

  constructor(record: z.infer<typeof CellRecord>, directory: string, parts: CellParts) {
    this.#record = record;
    this.#directory = directory;
    this.#parts = parts;
    this.cgroup = new Cgroup(parts.hierarchies, cgroupName(record.uid));
  }

  get uid(): number {
    return this.#record.uid;
  }

  get ownedPaths(): readonly string[] {
    return this.#record.ownedPaths;
  }

  save(): void {
    writeFileSync(join(this.#directory, CELL_FILE), JSON.stringify(this.#record), { mode: 0o600 });
  }

  own(paths: readonly string[]): void {
    this.#record.ownedPaths.push(...paths);
    this.save();
    for (const path of paths) lchownSync(path, this.uid, this.uid);
  }

  end(): Promise<CellEnd> {
    this.#ending ??= this.#end().catch((error: unknown) => {
      this.#ending = undefined;
      throw error;
    });
    return this.#ending;
  }

  async #end(): Promise<CellEnd> {
    const { slots, onEnd } = this.#parts;
    if (!slots.isOf(this.uid, this.#directory)) return { outOfMemory: false };
    const { outOfMemoryKills } = this.cgroup.usage();
    await this.cgroup.remove();
    for (const path of this.#record.ownedPaths) lchownIfThere(path);
    rmSync(join(this.#directory, CELL_FILE), { force: true });
    slots.free(this.uid, this.#directory);
    onEnd(this);
    return { outOfMemory: outOfMemoryKills > 0 };
  }
}

const cgroupName = (uid: number): string => `vmm-${uid}`;

function usableHierarchies(): Hierarchy[] {
  if (process.geteuid?.() !== 0) throw new Error('the host agent does not run as root');
  const hierarchies = hostHierarchies();
  const missing = missingControllers(hierarchies);
  if (missing.length > 0) throw new Error(`there are no control groups for ${missing.join(', ')}`);
  prepareParents(hierarchies);
  return hierarchies;
}

function readRecord(directory: string): z.infer<typeof CellRecord> | undefined {
  try {
    return CellRecord.parse(JSON.parse(readFileSync(join(directory, CELL_FILE), 'utf8')));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

function lchownIfThere(path: string): void {
  try {
    lchownSync(path, 0, 0);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}

async function isThere(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    (error: NodeJS.ErrnoException) => error.code !== 'ENOENT',
  );
}
