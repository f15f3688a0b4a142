import type { FileInfo } from '@fuse/sdk';
import { expect, test } from 'vitest';
import { fileLine } from './file-text.ts';

const file = (more: Partial<FileInfo>): FileInfo => ({
  path: '/w/a',
  name: 'a',
  type: 'file',
  size_bytes: 12,
  mode: '0644',
  uid: 0,
  gid: 0,
  modified_at: '2026-01-02T03:04:05.678Z',
  ...more,
});

test('a line has type, permissions, owner, size, time and name', () => {
  expect(fileLine(file({ user: 'root', group: 'root' }), 'a')).toBe(
    '-rw-r--r-- root root         12 2026-01-02 03:04:05Z a',
  );
  expect(fileLine(file({ type: 'symlink', mode: '0777', target: 'b\nc' }), 'a')).toContain('lrwxrwxrwx 0 0');
  expect(fileLine(file({ type: 'symlink', mode: '0777', target: 'b\nc' }), 'a')).toContain('a -> b\\nc');
});

test.each([
  ['4755', 'rwsr-xr-x'],
  ['2644', 'rw-r-Sr--'],
  ['1777', 'rwxrwxrwt'],
  ['0000', '---------'],
])('mode %s is %s', (mode, text) => {
  expect(fileLine(file({ mode }), 'a').slice(1, 10)).toBe(text);
});

test('a name cannot write to the terminal', () => {
  expect(fileLine(file({}), '\x1b[2Ja')).toContain('\\u{1b}[2Ja');
});
