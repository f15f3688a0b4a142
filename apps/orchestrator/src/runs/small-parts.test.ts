import { describe, expect, it } from 'vitest';
import { parseByteRange } from '../http/byte-range.ts';
import { contentTypeOf } from './content-type.ts';
import { checkDownload, downloadExpiry, downloadPath } from './download-url.ts';
import { formatPosition, parsePosition, START } from './event-position.ts';
import { ownerOf } from './object-keys.ts';
import { outputRows } from './outputs.ts';
import { decodeHead } from './run-view.ts';

describe('a byte range', () => {
  it.each([
    [undefined, undefined],
    ['bytes=0-', { start: 0, end: 10 }],
    ['bytes=2-4', { start: 2, end: 5 }],
    ['bytes=9-', { start: 9, end: 10 }],
    ['bytes=0-999', { start: 0, end: 10 }],
    ['bytes=-3', { start: 7, end: 10 }],
    ['bytes=-999', { start: 0, end: 10 }],
    ['bytes=10-', 'unsatisfiable'],
    ['bytes=-0', 'unsatisfiable'],
    ['bytes=4-2', undefined],
    ['bytes=-', undefined],
    ['bytes=0-1,3-4', undefined],
    ['lines=0-1', undefined],
    ['bytes=a-b', undefined],
  ])('of %j', (header, expected) => {
    expect(parseByteRange(header, 10)).toEqual(expected);
  });
});

describe('a position', () => {
  it.each([START, { row: 12, output: { frameStart: 9, within: 3 } }, { row: 7, output: 'end' as const }])(
    'survives being written and read: %j',
    (position) => expect(parsePosition(formatPosition(position))).toEqual(position),
  );
  it('is the start when there is none', () => {
    expect(parsePosition(undefined)).toEqual(START);
    expect(parsePosition('')).toEqual(START);
  });
  it.each(['x', '1', '1.2', '-1.0.0', '1.2.3.4', '1.end.', `${'9'.repeat(20)}.0.0`, '1.0.99999999'])(
    'is not %j',
    (text) => {
      expect(parsePosition(text)).toBeUndefined();
    },
  );
});

describe('a download URL', () => {
  const key = Buffer.alloc(32, 1);
  const nowMs = Date.UTC(2030, 0, 1);
  const download = { runId: 'run-1', position: 2, expiresUnixSeconds: downloadExpiry(nowMs) };
  const signature = new URLSearchParams(downloadPath(key, download).split('?')[1]).get('signature') ?? '';

  it('opens what it was made for, until it expires', () => {
    checkDownload(key, download, signature, nowMs);
    const expires = download.expiresUnixSeconds * 1_000;
    expect(expires - nowMs).toBeGreaterThanOrEqual(3_600_000);
    expect(expires - nowMs).toBeLessThan(3_900_001);
    checkDownload(key, download, signature, expires - 1);
    expect(() => checkDownload(key, download, signature, expires)).toThrow('expired');
  });

  it.each([
    ['another run', { ...download, runId: 'run-2' }, signature],
    ['another output', { ...download, position: 3 }, signature],
    ['a later expiry', { ...download, expiresUnixSeconds: download.expiresUnixSeconds + 1 }, signature],
    ['no expiry', { ...download, expiresUnixSeconds: Number.NaN }, signature],
    ['another signature', download, signature.replace(/^./, (digit) => (digit === '0' ? '1' : '0'))],
    ['half a signature', download, signature.slice(0, 32)],
    ['no signature', download, ''],
  ])('opens nothing with %s', (_what, changed, given) => {
    expect(() => checkDownload(key, changed, given, nowMs)).toThrow('not valid');
  });
});

describe('the head of a stream', () => {
  const euro = Buffer.from('€');
  it('leaves out a character that the cut went through, and calls nothing lossy', () => {
    expect(decodeHead(Buffer.concat([Buffer.from('ab'), euro.subarray(0, 2)]), true)).toEqual({
      text: 'ab',
      lossy: false,
    });
  });
  it('shows invalid bytes and says so', () => {
    expect(decodeHead(Buffer.concat([Buffer.from('ab'), euro.subarray(0, 2)]), false)).toEqual({
      text: 'ab\ufffd',
      lossy: true,
    });
    expect(decodeHead(Buffer.from([0xff, 0x61]), true)).toEqual({ text: '\ufffda', lossy: true });
  });
  it('keeps a byte order mark', () => {
    expect(decodeHead(Buffer.from('\ufeffx'), false)).toEqual({ text: '\ufeffx', lossy: false });
  });
});

describe('what a host collected', () => {
  const file = (path: string, kind: 'file' | 'log' = 'file') => ({
    path,
    kind,
    object_key: 'runs/x/out/0',
    size_bytes: 1,
    sha256: 'a'.repeat(64),
  });

  it('keeps our names for us and tells of every file that is not saved', () => {
    const { rows, skipped } = outputRows('run-1', {
      outputs: [
        file('a.json'),
        file('.fuse/stdout.log'),
        file('.fuse/stdout.log', 'log'),
        file('a.json'),
        file('bad\0name'),
        file('/workspace/.fuse/x'),
      ],
      skipped: [{ path: 'l', reason: 'symlink' }],
    });
    expect(rows.map(({ path, kind, position }) => [position, path, kind])).toEqual([
      [0, 'a.json', 'file'],
      [1, '.fuse/stdout.log', 'log'],
    ]);
    expect(skipped).toEqual([
      { path: 'l', reason: 'symlink' },
      { path: '.fuse/stdout.log', reason: 'bad_name' },
      { path: 'bad\ufffdname', reason: 'bad_name' },
      { path: '/workspace/.fuse/x', reason: 'bad_name' },
    ]);
  });

  it('is bounded', () => {
    const many = Array.from({ length: 5_000 }, (_, n) => ({ path: `l${n}`, reason: 'symlink' as const }));
    const { skipped } = outputRows('run-1', { outputs: [], skipped: many });
    expect(skipped.length).toBe(1_000);
    expect(skipped.at(-1)).toEqual({ path: '(4001 more)', reason: 'too_many' });
  });
});

describe('a content type', () => {
  it.each([
    ['a.json', 'application/json'],
    ['x/chart.SVG', 'image/svg+xml'],
    ['.fuse/stdout.log', 'text/plain; charset=utf-8'],
    ['Makefile', 'application/octet-stream'],
    ['a.constructor', 'application/octet-stream'],
    ['x.valueof', 'application/octet-stream'],
  ])('of %s is %s', (path, type) => expect(contentTypeOf(path)).toBe(type));
});

describe('the owner of an object', () => {
  it('is told by its key, with its age', () => {
    const id = `run-0${(1_700_000_000_000).toString(36)}${'a'.repeat(20)}`;
    expect(ownerOf(`runs/${id}/in/0`)).toEqual({ id, createdMs: 1_700_000_000_000 });
    expect(ownerOf('runs/other')).toBeUndefined();
    expect(ownerOf('templates/x')).toBeUndefined();
  });
});
