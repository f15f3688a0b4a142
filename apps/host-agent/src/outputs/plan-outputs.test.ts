import type { GuestGlobResult } from '@fuse/host-protocol';
import { describe, expect, it } from 'vitest';
import { isCleanName, planOutputs } from './plan-outputs.ts';

const limits = { key_prefix: 'runs/r1', max_files: 3, max_file_bytes: 100, max_total_bytes: 250 };
const found = (...files: [path: string, size: number][]): GuestGlobResult => ({
  files: files.map(([path, size_bytes]) => ({ path, absolute_path: `/workspace/${path}`, size_bytes, mode: 0o644 })),
  skipped: [{ path: 'link', reason: 'symlink' }],
});

describe('planOutputs', () => {
  it('numbers the keys itself and never uses a name in them', () => {
    const plan = planOutputs(found(['a/b c', 1], ['ü', 2]), limits);
    expect(plan.accepted.map(({ objectKey }) => objectKey)).toEqual(['runs/r1/0', 'runs/r1/1']);
    expect(plan.skipped).toEqual([{ path: 'link', reason: 'symlink' }]);
  });

  it('says why each file beyond a limit is not saved, and goes on with those that fit', () => {
    const plan = planOutputs(found(['big', 101], ['a', 100], ['b', 100], ['c', 100], ['d', 50], ['e', 0]), limits);
    expect(plan.accepted.map(({ path }) => path)).toEqual(['a', 'b', 'd']);
    expect(plan.skipped.slice(1)).toEqual([
      { path: 'big', reason: 'too_large' },
      { path: 'c', reason: 'total_too_large' },
      { path: 'e', reason: 'too_many' },
    ]);
  });

  it('takes a path once', () => {
    expect(planOutputs(found(['a', 1], ['a', 1]), limits).accepted.length).toBe(1);
  });

  it('refuses names that lead out, that are not text, or that are its own', () => {
    const hostile = [
      '../x',
      'a/../../x',
      '..',
      '.',
      'a//b',
      'a/',
      '/',
      '',
      'a\0b',
      './a',
      'x'.repeat(256),
      '.fuse/stdout.log',
      '/..',
      '\ud800',
    ];
    for (const name of hostile) expect(isCleanName(name), JSON.stringify(name)).toBe(false);
    const plan = planOutputs(found(['../x', 1]), limits);
    expect(plan.accepted).toEqual([]);
    expect(plan.skipped[1]).toEqual({ path: '../x', reason: 'bad_name' });
  });

  it('takes odd names that are only odd', () => {
    const odd = [
      '-rf',
      'a b',
      "it's",
      '"q"',
      '$(reboot)',
      'line\nbreak',
      '😀',
      'x'.repeat(255),
      '/abs/olute',
      '...',
      'a/.fuse',
      'tab\t',
    ];
    for (const name of odd) expect(isCleanName(name), JSON.stringify(name)).toBe(true);
  });
});
