/** Firecracker and its jailer as they are installed here, and whether this version is one that we use. */
import { execFile } from 'node:child_process';
import { access, constants, realpath } from 'node:fs/promises';
import { basename } from 'node:path';
import { promisify } from 'node:util';
import { AppError } from '@fuse/contract';
import { isAtLeast } from '../../doctor/version.ts';

/**
 * Older ones have faults that matter here: guests that get out through the virtio-pci transport, jailers that follow links, and vsock connections that hang for ever after a
 * pause or a restore.
 */
export const LEAST_FIRECRACKER = '1.16.2';
const PLACES = ['/usr/local/bin', '/usr/bin', '/opt/firecracker'];
const VERSION_DEADLINE_MS = 10_000;

export interface FirecrackerPrograms {
  /** Resolved: the jailer names its directory for the file. */
  firecracker: string;
  jailer: string;
  /** As it says itself, such as 1.16.2. */
  version: string;
  /** Of the format of device state. */
  snapshotVersion: string;
}

/** Where they are looked for unless configured. */
export interface ProgramPaths {
  firecracker?: string | undefined;
  jailer?: string | undefined;
}

/** Throws with the reason, and what to do, where they are missing, too old or do not fit together. */
export async function findFirecracker(paths: ProgramPaths = {}): Promise<FirecrackerPrograms> {
  const firecracker = await find('firecracker', paths.firecracker);
  const jailer = await find('jailer', paths.jailer);
  const version = versionIn(await output(firecracker, '--version'));
  const jailerVersion = versionIn(await output(jailer, '--version'));
  requireVersions(version, jailerVersion);
  const snapshotVersion = versionIn(await output(firecracker, '--snapshot-version'));
  return { firecracker, jailer, version, snapshotVersion };
}

/** Separate for those who have what the programs printed. */
export function requireVersions(firecracker: string, jailer: string): void {
  if (!isAtLeast(plain(firecracker), LEAST_FIRECRACKER))
    throw new AppError('unavailable', `Firecracker ${firecracker} is not used: older than ${LEAST_FIRECRACKER}`, {
      hint: `older versions have known faults in their device transports, jailer and vsock: install ${LEAST_FIRECRACKER} or newer`,
    });
  if (firecracker !== jailer)
    throw new AppError('unavailable', `Firecracker is ${firecracker} and its jailer ${jailer}`, {
      hint: 'install both from one release',
    });
}

/** `Firecracker v1.17.0-dev`, and what comes after it, is `1.17.0-dev`. */
export function versionIn(text: string): string {
  const version = /\bv(\d+\.\d+\.\d+[\w.+-]*)/.exec(text)?.[1];
  if (version === undefined) throw new AppError('unavailable', `no version in "${text.slice(0, 100)}"`);
  return version;
}

const plain = (version: string): string => version.replace(/[^\d.].*$/, '');

async function find(name: 'firecracker' | 'jailer', configured: string | undefined): Promise<string> {
  const tried = configured === undefined ? PLACES.map((place) => `${place}/${name}`) : [configured];
  for (const path of tried) {
    try {
      await access(path, constants.X_OK);
      return await realpath(path);
    } catch {
      // the next place
    }
  }
  throw new AppError('unavailable', `${name} is not there, or cannot be run: tried ${tried.join(', ')}`, {
    hint: `install ${name} of a Firecracker release (${LEAST_FIRECRACKER} or newer) in ${PLACES[0]}, or say where it is with FUSE_${name.toUpperCase()}`,
  });
}

async function output(program: string, option: string): Promise<string> {
  try {
    const { stdout } = await promisify(execFile)(program, [option], { timeout: VERSION_DEADLINE_MS, env: {} });
    return stdout;
  } catch (cause) {
    throw new AppError('unavailable', `${basename(program)} ${option} failed`, { cause });
  }
}
