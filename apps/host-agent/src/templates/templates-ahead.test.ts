import { DEFAULT_SHAPE } from '@fuse/contract';
import { describe, expect, it } from 'vitest';
import { loadConfig } from '../config.ts';

const aheadOf = (text?: string) =>
  loadConfig({ FUSE_HOST_TOKEN: 'a-token-that-is-long-enough', FUSE_TEMPLATES: text }).templatesAhead;

describe('templates that are made ahead', () => {
  it('are those of the default image and shape, without a network card and with one', () => {
    const base = { image: 'base', shape: DEFAULT_SHAPE };
    expect(aheadOf()).toEqual([
      { ...base, networkCard: false },
      { ...base, networkCard: true },
    ]);
    expect(aheadOf('base,base+network')).toEqual(aheadOf());
    expect(aheadOf('none')).toEqual([]);
  });

  it('are of the shape that is given', () => {
    expect(aheadOf('py-3.12:2x1024x4+network, base:1x256x1')).toEqual([
      { image: 'py-3.12', shape: { cpus: 2, ram_mb: 1_024, storage_gb: 4 }, networkCard: true },
      { image: 'base', shape: { cpus: 1, ram_mb: 256, storage_gb: 1 }, networkCard: false },
    ]);
  });

  it.each(['base,', 'base:1x256', 'base:0x256x1', 'base+card', '../base', 'none,base:'])('%s is refused', (text) => {
    expect(() => aheadOf(text)).toThrow('FUSE_TEMPLATES');
  });
});
