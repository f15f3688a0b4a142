import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { cpioArchive } from './cpio.mjs';

describe('cpio archives', () => {
  /** @type {string} */
  let directory;
  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'fuse-cpio-'));
  });
  afterEach(() => rmSync(directory, { recursive: true }));

  const entries = [
    { path: 'init', mode: 0o755, data: Buffer.from('#!/bin/sh\n') },
    { path: 'modules' },
    { path: 'modules/00-a.ko', data: Buffer.from([0, 1, 2]) },
    { path: 'modules/01-b.ko', data: Buffer.alloc(0) },
    { path: 'dev' },
    { path: 'dev/null', mode: 0o666, device: { major: 1, minor: 3 } },
  ];

  it('are laid out as Linux reads them: 110-byte headers, everything on multiples of four', () => {
    const archive = cpioArchive(entries);
    expect(archive.length % 4).toBe(0);
    const magics = archive.toString('latin1').split('070701').length - 1;
    expect(magics).toBe(entries.length + 1);
    expect(archive.toString('latin1')).toContain('TRAILER!!!\0');
    expect(archive.toString('latin1', 0, 14)).toBe('07070100000001');
    expect(archive.toString('latin1', 14, 22)).toBe('000081ed');
  });

  it('are the same bytes for the same entries', () => {
    expect(cpioArchive(entries).equals(cpioArchive(entries))).toBe(true);
  });

  it('are unpacked by cpio', () => {
    expect(execFileSync('cpio', ['-itv', '--quiet'], { input: cpioArchive(entries), encoding: 'utf8' })).toMatch(
      /^crw-rw-rw- .* 1, +3 .* dev\/null$/m,
    );
    // Making a device takes root.
    execFileSync('cpio', ['-idm', '--quiet', '--nonmatching', 'dev/null'], {
      cwd: directory,
      input: cpioArchive(entries),
    });
    expect(readFileSync(join(directory, 'init'), 'utf8')).toBe('#!/bin/sh\n');
    expect(statSync(join(directory, 'init')).mode & 0o777).toBe(0o755);
    expect(readFileSync(join(directory, 'modules/00-a.ko'))).toEqual(Buffer.from([0, 1, 2]));
  });
});
