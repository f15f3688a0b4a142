/**
 * What a Firecracker sees as `/`: `jail/<program>/<id>/root` in the machine's directory. Files get there as hard links, so that its user reaches these and nothing else. Once it
 * runs, `root` and all that it has made in it are its user's, to be taken for hostile: names there are opened one by one, without following a link.
 */
import { createHash } from 'node:crypto';
import { constants, statSync } from 'node:fs';
import { chmod, link, mkdir, open, rm, stat } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { basename, join } from 'node:path';
import { AppError } from '@fuse/contract';
import { type Directories, isWithin, type Limits } from '../disk-watch.ts';
import { copyHostileFile } from '../hostile-file.ts';
import { connectUnixSocket } from '../unix-socket.ts';

/** Names in the chroot. A snapshot's devices know their files by these, so they are the same in every VM. */
export const inside = {
  kernel: '/kernel',
  initramfs: '/initramfs',
  image: '/image',
  disk: '/disk',
  memory: '/memory',
  device: '/device',
  metrics: '/metrics',
  console: '/console',
  apiSocket: '/run/api.sock',
  guestSocket: '/run/guest.sock',
  newDevice: '/run/new-device',
  newMemory: '/run/new-memory',
} as const;
export type Inside = (typeof inside)[keyof typeof inside];

const BASE = 'jail';
const RUN = 'run';
/** The jailer makes them, and gives them to the VMM's user. */
const MADE_BY_JAILER: Directories = { dev: { net: {} }, [RUN]: {} };
const O_PATH = 0o10000000;
const EVERYBODY_MAY_READ = 0o444;

export class Chroot {
  /** What the jailer calls the VM: letters, digits and hyphens. */
  readonly id: string;
  readonly basePath: string;
  readonly rootPath: string;

  constructor(directory: string, programName: string) {
    this.id = `vm-${createHash('sha256').update(directory).digest('hex').slice(0, 32)}`;
    this.basePath = join(directory, BASE);
    this.rootPath = join(this.basePath, programName, this.id, 'root');
  }

  /** Empty, and root's until the jailer gives it away. */
  async create(): Promise<void> {
    await mkdir(this.basePath, { mode: 0o700 });
    await mkdir(this.rootPath, { recursive: true, mode: 0o700 });
  }

  /** The file by another name in here. `readable`: made so for the VMM's user, who reaches none but those that are linked. */
  async link(path: string, name: Inside, access: 'readable' | 'owned'): Promise<void> {
    if (access === 'readable') {
      const { mode } = await stat(path);
      if ((mode & EVERYBODY_MAY_READ) !== EVERYBODY_MAY_READ) await chmod(path, (mode & 0o7777) | EVERYBODY_MAY_READ);
    }
    await linkHere(path, this.outside(name));
  }

  /** The host's path of a name in here, good until Firecracker runs. */
  outside(name: Inside): string {
    return join(this.rootPath, name);
  }

  connect(name: Inside): Promise<Socket> {
    return this.#inRun((run) => connectUnixSocket(run, basename(name)));
  }

  /** `to` must not exist. */
  copyOut(name: Inside, to: string, maxBytes: number): Promise<void> {
    return this.#inRun((run) => copyHostileFile(join(run, basename(name)), to, maxBytes));
  }

  /** A plain file that the VMM has made, for reading. */
  openFile(name: Inside): Promise<Awaited<ReturnType<typeof open>>> {
    return this.#inRun(async (run) => {
      const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
      const handle = await open(join(run, basename(name)), flags);
      if ((await handle.stat()).isFile()) return handle;
      await handle.close();
      throw new AppError('unavailable', `${name} is no plain file`);
    });
  }

  async removeFiles(names: readonly Inside[]): Promise<void> {
    await this.#inRun(async (run) => {
      for (const name of names) await rm(join(run, basename(name)), { recursive: true, force: true });
    });
  }

  /** Whether its VMM has put no more in here than this. `given`: the host's names of files that are linked here. */
  isWithin(limits: Limits, owner: { pid: number; uid: number }, given: readonly string[]): Promise<boolean> {
    return isWithin({ path: this.rootPath, known: MADE_BY_JAILER, owner, given }, limits);
  }

  /** Whether this process has it as its root. Its VMM can not deny that. */
  isRootOf(pid: string): boolean {
    try {
      const own = statSync(this.rootPath, { bigint: true });
      const root = statSync(`/proc/${pid}/root`, { bigint: true });
      return own.ino === root.ino && own.dev === root.dev;
    } catch {
      return false; // it has ended, or there is none
    }
  }

  async #inRun<T>(work: (path: string) => Promise<T>): Promise<T> {
    const flags = O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW;
    const handle = await open(join(this.rootPath, RUN), flags);
    try {
      return await work(`/proc/self/fd/${handle.fd}`);
    } finally {
      await handle.close();
    }
  }
}

/** A hard link, which alone leads into a chroot. */
export async function linkHere(existing: string, path: string): Promise<void> {
  try {
    await link(existing, path);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'EXDEV') throw cause;
    throw new AppError('unavailable', `${existing} is on another file system than the VMs`, {
      cause,
      hint: 'Firecracker needs images, snapshots and VMs on one file system: keep FUSE_HOME on one',
    });
  }
}
