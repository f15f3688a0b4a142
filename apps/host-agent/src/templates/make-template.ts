/**
 * Makes a template: cold boot on a memory file that is shared, the image's warm commands, flush, channel closed, pause, snapshot. The guest has
 * no identity yet: every VM restored from it gets its own.
 */
import { chmod, mkdir, open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError } from '@fuse/contract';
import type { Shape } from '@fuse/host-protocol';
import { type Logger, sleep } from '@fuse/runtime';
import type { Guest } from '../guest/guest.ts';
import { connectGuest } from '../guest/guest-client.ts';
import type { Assets, ImageAsset } from '../images/assets.ts';
import type { NetworkCard, Vmm, VmmDriver } from '../vmm/driver.ts';
import { readTail } from '../vmm/log-file.ts';
import { createWritableDisk } from '../vmm/machine-disk.ts';
import { flushFile } from '../vmm/sparse-copy.ts';
import {
  DESCRIPTION_FILE,
  DEVICE_PART,
  DISK_PART,
  describeParts,
  MEMORY_PART,
  TEMPLATE_FORMAT,
  type TemplateDescription,
} from './template-files.ts';

export const MAKING_VM_DIRECTORY = 'vm';
const CONSOLE_FILE = 'console.log';
/** The guest sees the host go and waits for the next one, which is where its copies wake up. */
const SETTLE_MS = 300;
const PACE_WINDOW_MS = 1_000;
const PACE_TOLERANCE = 0.02;

export interface TemplateOrder {
  driver: VmmDriver;
  assets: Assets;
  image: ImageAsset;
  shape: Shape;
  madeFrom: TemplateDescription['madeFrom'];
  /** Of a template with a card. */
  network?: NetworkCard;
  log: Logger;
}

/** Leaves the whole template in `directory`, flushed. On failure the caller removes the directory. */
export async function makeTemplate(order: TemplateOrder, directory: string, signal: AbortSignal): Promise<void> {
  const { driver, assets, image, shape, network } = order;
  const vmDirectory = join(directory, MAKING_VM_DIRECTORY);
  const memoryPath = join(directory, MEMORY_PART);
  const diskPath = join(directory, DISK_PART);
  const consolePath = join(directory, CONSOLE_FILE);
  await mkdir(vmDirectory);
  await createWritableDisk(diskPath, shape.storage_gb, signal);
  const vmm = await driver.boot(
    {
      directory: vmDirectory,
      shape: { cpus: shape.cpus, memoryMiB: shape.ram_mb },
      imagePath: image.path,
      writableDiskPath: diskPath,
      kernelPath: assets.kernel.path,
      initramfsPath: assets.initramfs.path,
      sharedMemoryPath: memoryPath,
      consolePath,
      ...(network === undefined ? {} : { network }),
    },
    signal,
  );
  try {
    await prepareGuest(vmm, order, signal);
    await vmm.pause(signal);
    await vmm.snapshot({ memoryPath, devicePath: join(directory, DEVICE_PART) }, signal);
  } catch (cause) {
    signal.throwIfAborted();
    throw new AppError('unavailable', `the template of image ${image.name} could not be made: ${messageOf(cause)}`, {
      cause,
      details: { console: await readTail(consolePath) },
    });
  } finally {
    await vmm.destroy();
  }
  await rm(vmDirectory, { recursive: true });
  await rm(consolePath, { force: true });
  for (const part of [MEMORY_PART, DEVICE_PART, DISK_PART]) await chmod(join(directory, part), 0o444);
  await flushFile(diskPath);
  const description: TemplateDescription = {
    format: TEMPLATE_FORMAT,
    madeFrom: order.madeFrom,
    parts: await describeParts(directory, signal),
  };
  await writeFlushed(join(directory, DESCRIPTION_FILE), `${JSON.stringify(description, null, 2)}\n`);
  await flushFile(directory);
}

async function prepareGuest(vmm: Vmm, order: TemplateOrder, signal: AbortSignal): Promise<void> {
  const guest = connectGuest(vmm, { log: order.log });
  try {
    await guest.health(signal);
    await guest.health(signal); // answers once the guest has booted
    const before = await clockReading(guest, signal);
    for (const [number, argv] of order.image.warm.entries()) await warm(guest, `warm-${number}`, argv, order, signal);
    await requireTruePace(guest, before, signal);
    await guest.sync(signal);
  } finally {
    await guest[Symbol.asyncDispose]();
  }
  await sleep(SETTLE_MS, signal);
}

interface ClockReading {
  /** The guest read its clock between these two. */
  askedMs: number;
  answeredMs: number;
  guestMs: number;
}

async function clockReading(guest: Guest, signal: AbortSignal): Promise<ClockReading> {
  const askedMs = performance.now();
  const { uptime_ms: guestMs } = await guest.health(signal);
  return { askedMs, answeredMs: performance.now(), guestMs };
}

/** A guest that mistook the rate of its clock while booting would pass the mistake on to every VM of the template. */
async function requireTruePace(guest: Guest, before: ClockReading, signal: AbortSignal): Promise<void> {
  const elapsedMs = performance.now() - before.answeredMs;
  if (elapsedMs < PACE_WINDOW_MS) await sleep(PACE_WINDOW_MS - elapsedMs, signal);
  const after = await clockReading(guest, signal);
  const passedMs = after.guestMs - before.guestMs;
  const shortestMs = after.askedMs - before.answeredMs;
  const longestMs = after.answeredMs - before.askedMs;
  if (passedMs < shortestMs * (1 - PACE_TOLERANCE) || passedMs > longestMs * (1 + PACE_TOLERANCE))
    throw new Error(
      `the guest's clock went ${Math.round(passedMs)} ms in ${Math.round(shortestMs)} to ${Math.round(longestMs)} ms`,
    );
}

/** Only a head start for later VMs: a command that fails costs time and nothing else. */
async function warm(
  guest: Guest,
  id: string,
  argv: string[],
  { image, log }: TemplateOrder,
  signal: AbortSignal,
): Promise<void> {
  try {
    const conversation = await guest.exec(id, { spec: { argv, stdin: false, cwd: '/' } }, signal);
    let received = 0;
    for await (const chunk of conversation.frames) {
      received += chunk.length;
      conversation.ack(received);
    }
  } catch (error) {
    signal.throwIfAborted();
    log.warn({ err: error, image: image.name, argv }, 'warm command failed');
  }
  await guest.killExec(id, signal);
}

async function writeFlushed(path: string, text: string): Promise<void> {
  const handle = await open(path, 'wx');
  try {
    await handle.writeFile(text);
    await handle.sync();
  } finally {
    await handle.close();
  }
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
