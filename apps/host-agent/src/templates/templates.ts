/**
 * Pre-booted snapshots, one per image, kernel, initramfs, driver, shape and whether there is a network card; made on first need, once.
 *
 * A template is made in a directory of another name and renamed when it is whole and flushed: one of its final name is whole. Making,
 * replacing and removing are done under the template's lock, which processes share and the kernel frees when its holder dies.
 */
import { createHash, randomBytes } from 'node:crypto';
import { mkdir, realpath, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError } from '@fuse/contract';
import type { HostTemplate, Shape } from '@fuse/host-protocol';
import type { Logger } from '@fuse/runtime';
import type { Assets, ImageAsset } from '../images/assets.ts';
import type { NetworkCard, SnapshotFiles, VmmDriver } from '../vmm/driver.ts';
import { flushFile } from '../vmm/sparse-copy.ts';
import { makeTemplate } from './make-template.ts';
import { lock } from './process-lock.ts';
import { listTemplates, makeRoom, sweepTemplates } from './sweep.ts';
import {
  DEVICE_PART,
  DISK_PART,
  findDamage,
  MEMORY_PART,
  stampOf,
  TEMPLATE_FORMAT,
  type TemplateDescription,
} from './template-files.ts';

const MAKE_DEADLINE_MS = 180_000;
const LOCK_DEADLINE_MS = 600_000;

export interface Template {
  key: string;
  snapshot: SnapshotFiles;
  /** The writable disk of the snapshot's instant: each VM starts from its own copy (vmm/machine-disk.ts). */
  diskPath: string;
}

export interface TemplatesOptions {
  /** `<host data directory>/templates`; made when missing. */
  directory: string;
  driver: VmmDriver;
  assets: Assets;
  log: Logger;
  /** For templates with a card: one that leads nowhere, for as long as `work` takes. */
  withCard?: <T>(work: (card: NetworkCard) => Promise<T>, signal: AbortSignal) => Promise<T>;
}

/** A guest that boots with a card has a driver for it and a place: such templates are others. */
export interface TemplateKind {
  networkCard: boolean;
}

export class Templates implements AsyncDisposable {
  readonly #options: TemplatesOptions;
  /** Stamps of the templates whose digests this process has checked or computed. */
  readonly #checked = new Map<string, string>();
  readonly #inWork = new Map<string, Promise<Template>>();
  readonly #closing = new AbortController();
  #lastMaking: Promise<unknown> = Promise.resolve();

  constructor(options: TemplatesOptions) {
    this.#options = options;
  }

  /** The template of this image and shape; the first call makes it (seconds), later ones find it. A damaged one is made again. */
  async ensure(
    image: ImageAsset,
    shape: Shape,
    signal?: AbortSignal,
    kind: TemplateKind = { networkCard: false },
  ): Promise<Template> {
    signal?.throwIfAborted();
    const { key, madeFrom } = await this.#wantedOf(image, shape, kind);
    const known = this.#checked.get(key);
    if (known !== undefined && known === (await stampOf(this.#path(key)))) return this.#template(key);
    // One caller that goes away does not stop the work that others wait for.
    const work = this.#inWork.get(key) ?? this.#startWork(key, { image, shape, madeFrom });
    return unlessAborted(work, signal);
  }

  /** Whether it is there; nothing of it is checked. */
  async has(image: ImageAsset, shape: Shape, kind: TemplateKind): Promise<boolean> {
    const { key } = await this.#wantedOf(image, shape, kind);
    return (await stampOf(this.#path(key))) !== undefined;
  }

  /** Removes what makers that died left behind, and templates that nothing here can ask for any more. Called at start-up. */
  async sweep(): Promise<void> {
    const { directory, driver, log } = this.#options;
    await mkdir(directory, { recursive: true });
    const isWanted = await this.#wanted();
    await sweepTemplates({ directory, driver, log, isWanted, lockName: (key) => this.#lockName(key) });
  }

  /** Those that are there for the images of now. Nothing is checked: one that is damaged is made again when it is asked for. */
  async list(): Promise<HostTemplate[]> {
    const { directory, assets } = this.#options;
    const isWanted = await this.#wanted();
    return (await listTemplates(directory)).flatMap((madeFrom) => {
      const image = assets.images.find(({ digest }) => digest === madeFrom.image);
      if (image === undefined || !isWanted(madeFrom)) return [];
      const card = madeFrom.network_card === true ? { network_card: true as const } : {};
      return [{ image: image.name, ...madeFrom.shape, ...card }];
    });
  }

  /** Stops what is being made, and waits until nothing of it is left. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort(new AppError('unavailable', 'the host agent is stopping'));
    await Promise.allSettled([...this.#inWork.values(), this.#lastMaking]);
  }

  async #wanted(): Promise<(madeFrom: TemplateDescription['madeFrom']) => boolean> {
    const { driver, assets } = this.#options;
    const fingerprint = await driver.fingerprint();
    return ({ image, kernel, initramfs, driver: madeBy }) =>
      kernel === assets.kernel.sha256 &&
      initramfs === assets.initramfs.sha256 &&
      madeBy === fingerprint &&
      assets.images.some((each) => each.digest === image);
  }

  async #wantedOf(
    image: ImageAsset,
    shape: Shape,
    kind: TemplateKind,
  ): Promise<{ key: string; madeFrom: TemplateDescription['madeFrom'] }> {
    const madeFrom = await this.#ingredients(image, shape, kind);
    const hash = createHash('sha256').update(JSON.stringify([TEMPLATE_FORMAT, madeFrom]));
    return { key: hash.digest('hex').slice(0, 32), madeFrom };
  }

  async #ingredients(
    image: ImageAsset,
    shape: Shape,
    { networkCard }: TemplateKind,
  ): Promise<TemplateDescription['madeFrom']> {
    const { assets, driver } = this.#options;
    return {
      image: image.digest,
      kernel: assets.kernel.sha256,
      initramfs: assets.initramfs.sha256,
      driver: await driver.fingerprint(),
      shape: { cpus: shape.cpus, ram_mb: shape.ram_mb, storage_gb: shape.storage_gb },
      warm: image.warm,
      ...(networkCard ? { network_card: true } : {}),
    };
  }

  #startWork(key: string, what: Wanted): Promise<Template> {
    const work = this.#findOrMake(key, what).finally(() => this.#inWork.delete(key));
    this.#inWork.set(key, work);
    return work;
  }

  async #findOrMake(key: string, what: Wanted): Promise<Template> {
    const { signal } = this.#closing;
    await mkdir(this.#options.directory, { recursive: true });
    const held = await lock(
      await this.#lockName(key),
      AbortSignal.any([signal, AbortSignal.timeout(LOCK_DEADLINE_MS)]),
    );
    try {
      const damage = await this.#check(key, signal);
      if (damage === undefined) return this.#template(key);
      // One at a time: two cold boots side by side only slow each other down.
      const making = this.#lastMaking.then(() =>
        this.#make(key, what, damage, AbortSignal.any([signal, AbortSignal.timeout(MAKE_DEADLINE_MS)])),
      );
      this.#lastMaking = making.catch(() => {});
      await making;
      return this.#template(key);
    } catch (cause) {
      if (cause instanceof AppError) throw cause;
      throw new AppError('unavailable', `no template of image ${what.image.name}: ${messageOf(cause)}`, { cause });
    } finally {
      await held[Symbol.asyncDispose]();
    }
  }

  /** What keeps this template from being used; undefined when nothing does. */
  async #check(key: string, signal: AbortSignal): Promise<string | undefined> {
    const stamp = await stampOf(this.#path(key));
    if (stamp === undefined) return 'it is not there';
    const damage = await findDamage(this.#path(key), signal);
    if (damage === undefined) this.#checked.set(key, stamp);
    return damage;
  }

  async #make(key: string, what: Wanted, reason: string, signal: AbortSignal): Promise<void> {
    const { directory, driver, assets, log } = this.#options;
    const startedAt = performance.now();
    log.info({ template: key, image: what.image.name, shape: what.shape, reason }, 'making template');
    const making = join(directory, `.making-${key}-${randomBytes(4).toString('hex')}`);
    await mkdir(making);
    try {
      const make = (card?: NetworkCard) =>
        makeTemplate(
          { driver, assets, log, ...what, ...(card === undefined ? {} : { network: card }) },
          making,
          signal,
        );
      await (what.madeFrom.network_card === true ? this.#withCard(make, signal) : make());
      await this.#discard(key);
      await rename(making, this.#path(key));
      await flushFile(directory);
    } catch (error) {
      await rm(making, { recursive: true, force: true });
      throw error;
    }
    const stamp = await stampOf(this.#path(key));
    if (stamp !== undefined) this.#checked.set(key, stamp);
    log.info({ template: key, image: what.image.name, ms: Math.round(performance.now() - startedAt) }, 'template made');
    await makeRoom({ directory, log, keep: key, lockName: (other) => this.#lockName(other) });
  }

  #withCard<T>(work: (card: NetworkCard) => Promise<T>, signal: AbortSignal): Promise<T> {
    const { withCard } = this.#options;
    if (withCard === undefined) throw new AppError('unavailable', 'there is no network for a template with a card');
    return withCard(work, signal);
  }

  /** VMs that run on it have its memory under a name of their own. */
  async #discard(key: string): Promise<void> {
    this.#checked.delete(key);
    const aside = join(this.#options.directory, `.removed-${key}-${randomBytes(4).toString('hex')}`);
    try {
      await rename(this.#path(key), aside);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
      throw error;
    }
    await rm(aside, { recursive: true, force: true });
  }

  #template(key: string): Template {
    const directory = this.#path(key);
    return {
      key,
      snapshot: { memoryPath: join(directory, MEMORY_PART), devicePath: join(directory, DEVICE_PART) },
      diskPath: join(directory, DISK_PART),
    };
  }

  #path(key: string): string {
    return join(this.#options.directory, key);
  }

  async #lockName(key: string): Promise<string> {
    return `template ${await realpath(this.#options.directory)} ${key}`;
  }
}

interface Wanted {
  image: ImageAsset;
  shape: Shape;
  madeFrom: TemplateDescription['madeFrom'];
}

function unlessAborted<T>(work: Promise<T>, signal?: AbortSignal): Promise<T> {
  if (signal === undefined) return work;
  return new Promise((resolve, reject) => {
    const onAbort = () =>
      reject(signal.reason instanceof Error ? signal.reason : new AppError('unavailable', 'aborted'));
    signal.addEventListener('abort', onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
  });
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
