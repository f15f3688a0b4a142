import { AppError } from '@fuse/contract';
import { describe, expect, it } from 'vitest';
import { findFirecracker, requireVersions, versionIn } from './programs.ts';

describe('the gate for versions', () => {
  it.each(['1.16.2', '1.16.10', '1.17.0', '1.17.0-dev', '2.0.0'])('lets %s in', (version) => {
    expect(() => requireVersions(version, version)).not.toThrow();
  });

  it.each(['1.16.1', '1.15.9', '0.25.2', '1.9.0-dev'])('keeps %s out, with the reason', (version) => {
    expect(() => requireVersions(version, version)).toThrow(/is not used: older than 1\.16\.2/);
  });

  it('keeps out a jailer of another release', () => {
    expect(() => requireVersions('1.17.0', '1.16.2')).toThrow(/its jailer 1\.16\.2/);
  });

  it('reads what the programs print', () => {
    expect(versionIn('Firecracker v1.17.0-dev\n\n2026-11-30 exiting successfully')).toBe('1.17.0-dev');
    expect(versionIn('Jailer v1.16.2\n')).toBe('1.16.2');
    expect(() => versionIn('no such thing')).toThrow(AppError);
  });

  it('says what to install when there is none', async () => {
    await expect(findFirecracker({ firecracker: '/nowhere/firecracker' })).rejects.toMatchObject({
      code: 'unavailable',
      message: expect.stringContaining('/nowhere/firecracker'),
      hint: expect.stringContaining('1.16.2'),
    });
  });
});
