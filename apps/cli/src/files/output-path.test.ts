import { join, normalize, resolve } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { outputPath, outputPaths } from './output-path.ts';

describe('outputPath', () => {
  it('keeps plain names', () => {
    for (const path of ['report.json', 'out/chart 1.svg', '.hidden', 'a\\b', 'é/日本/😀'])
      expect(outputPath(path)).toBe(path);
  });

  it('brings absolute and crooked paths below the directory', () => {
    expect(outputPath('/tmp/x')).toBe('tmp/x');
    expect(outputPath('a//b/./c')).toBe('a/b/c');
    expect(outputPath('../../etc/passwd')).toBe('__/__/etc/passwd');
    expect(outputPath('a\nb\u001b[31m')).toBe('a_b_[31m');
    for (const path of ['', '/', '.', './']) expect(outputPath(path)).toBe('_');
  });

  it('never leaves the directory, whatever the guest says', () => {
    const hostile = fc.array(
      fc.constantFrom('..', '.', '', 'a', '\0', '/', '\\', '~', '-', '\n', '...', 'x'.repeat(300)),
      { maxLength: 8 },
    );
    fc.assert(
      fc.property(
        fc.oneof(
          hostile.map((parts) => parts.join('/')),
          fc.string({ unit: 'binary' }),
        ),
        (path) => {
          const safe = outputPath(path);
          const full = resolve(join('/save/here', safe));
          expect(full.startsWith('/save/here/')).toBe(true);
          expect(normalize(safe)).toBe(safe);
          expect(safe).not.toMatch(/\p{Cc}/u);
          for (const name of safe.split('/')) expect(Buffer.byteLength(name)).toBeLessThanOrEqual(200);
        },
      ),
    );
  });
});

describe('outputPaths', () => {
  it('gives every output a place of its own', () => {
    expect(outputPaths(['a', '/a', './a', 'a/b'])).toEqual(['a', 'a~2', 'a~3', 'a~4/b']);
    expect(outputPaths(['d/x', 'd'])).toEqual(['d/x', 'd~2']);
  });

  it('never lets one overwrite another or stand in its way', () => {
    const names = fc.array(fc.constantFrom('a', 'b', '..', '\n', '_'), { minLength: 1, maxLength: 3 });
    fc.assert(
      fc.property(
        fc.array(
          names.map((parts) => parts.join('/')),
          { maxLength: 20 },
        ),
        (paths) => {
          const places = outputPaths(paths);
          expect(new Set(places).size).toBe(paths.length);
          for (const place of places) for (const other of places) expect(other.startsWith(`${place}/`)).toBe(false);
        },
      ),
    );
  });
});
