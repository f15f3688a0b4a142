/** Templates that are made before anybody asks for them, in the background, from the host agent's start on. */
import { DEFAULT_IMAGE, DEFAULT_SHAPE } from '@fuse/contract';
import type { Shape } from '@fuse/host-protocol';
import type { Logger } from '@fuse/runtime';
import { z } from 'zod';
import type { Assets } from '../images/assets.ts';
import type { TemplateKind, Templates } from './templates.ts';

export interface TemplateAhead extends TemplateKind {
  image: string;
  shape: Shape;
}

const NONE = 'none';
const CARD = '+network';
const SYNTAX = /^([a-z0-9][a-z0-9._-]*)(?::([1-9]\d{0,2})x([1-9]\d{1,6})x([1-9]\d{0,4}))?(\+network)?$/;

/** `base,base+network,base:2x1024x4+network`: image, cpus x MB of memory x GB of disk, with a card. */
export const TemplateList = z.string().transform((text, context): TemplateAhead[] => {
  if (text === NONE) return [];
  return text.split(',').flatMap((each) => {
    const match = SYNTAX.exec(each.trim());
    if (match === null) {
      const message = `must be image[:CPUSxMBxGB][${CARD}], separated by commas, or ${NONE}: "${each.trim()}"`;
      context.addIssue({ code: 'custom', message });
      return [];
    }
    const [, image = '', cpus, ramMb, storageGb, card] = match;
    const shape =
      cpus === undefined ? DEFAULT_SHAPE : { cpus: Number(cpus), ram_mb: Number(ramMb), storage_gb: Number(storageGb) };
    return [{ image, shape, networkCard: card !== undefined }];
  });
});

/** What most start from. */
export const DEFAULT_TEMPLATES_AHEAD: readonly TemplateAhead[] = [false, true].map((networkCard) => ({
  image: DEFAULT_IMAGE,
  shape: DEFAULT_SHAPE,
  networkCard,
}));

export interface AheadOptions {
  templates: Templates;
  assets: Assets;
  /** Whether this host can give a VM a card. */
  hasNetwork: boolean;
  log: Logger;
}

/**
 * One after the other, those that are not there. A start that needs the one being made waits for it, as it would for one of its own; one that needs another waits
 * for that to be done. A failure is told to the log: whoever asks for that template hears of it.
 */
export async function makeTemplatesAhead(
  wanted: readonly TemplateAhead[],
  { templates, assets, hasNetwork, log }: AheadOptions,
  signal: AbortSignal,
): Promise<void> {
  for (const { image: name, shape, networkCard } of wanted) {
    if (signal.aborted) return;
    if (networkCard && !hasNetwork) continue;
    const image = assets.images.find((each) => each.name === name);
    if (image === undefined) {
      log.warn({ image: name }, 'no template made ahead: there is no such image');
      continue;
    }
    try {
      if (!(await templates.has(image, shape, { networkCard })))
        await templates.ensure(image, shape, signal, { networkCard });
    } catch (error) {
      if (!signal.aborted) log.warn({ err: error, image: name, shape, networkCard }, 'template not made ahead');
    }
  }
}
