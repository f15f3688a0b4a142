import { describe, expect, it } from 'vitest';
import { compareVersions } from './go.mjs';
import { isInstalled } from './npm-packages.mjs';

describe('npm packages', () => {
  const wanted = {
    '': {},
    'packages/a': { version: '1.0.0' },
    'node_modules/a': { link: true },
    'node_modules/b': { version: '1.2.3', integrity: 'sha512-x' },
    'node_modules/c-darwin': { version: '1.0.0', optional: true },
  };
  const installed = { 'node_modules/a': { link: true }, 'node_modules/b': { version: '1.2.3', integrity: 'sha512-x' } };

  it('are already there when all but those of other platforms are', () => {
    expect(isInstalled(wanted, installed)).toBe(true);
  });

  it('are not when one is missing, has another version or other bytes', () => {
    expect(isInstalled(wanted, { 'node_modules/a': { link: true } })).toBe(false);
    expect(isInstalled(wanted, { ...installed, 'node_modules/b': { version: '1.2.4', integrity: 'sha512-x' } })).toBe(
      false,
    );
    expect(isInstalled(wanted, { ...installed, 'node_modules/b': { version: '1.2.3', integrity: 'sha512-y' } })).toBe(
      false,
    );
  });
});

describe('Go versions', () => {
  it.each([
    ['1.24.0', '1.24', 0],
    ['1.24', '1.24.1', -1],
    ['1.9', '1.24', -1],
    ['1.26.8', '1.24.0', 1],
  ])('%s against %s', (a, b, sign) => {
    expect(Math.sign(compareVersions(a, b))).toBe(sign);
  });
});
