import { expect, test } from 'vitest';
import { guestOperands, parseLocation } from './location.ts';

test.each([
  ['-', { kind: 'standard' }],
  ['fuse-demo:/etc/hosts', { kind: 'guest', id: 'fuse-demo', path: '/etc/hosts' }],
  ['fuse-demo:data/a b', { kind: 'guest', id: 'fuse-demo', path: '/workspace/data/a b' }],
  ['fuse-demo:', { kind: 'guest', id: 'fuse-demo', path: '/workspace' }],
  ['fuse-demo:a:b\nc', { kind: 'guest', id: 'fuse-demo', path: '/workspace/a:b\nc' }],
  ['./a:b', { kind: 'local', path: './a:b' }],
  ['/tmp/x', { kind: 'local', path: '/tmp/x' }],
  ['plain', { kind: 'local', path: 'plain' }],
  ['-x', { kind: 'local', path: '-x' }],
] as const)('%j is %o', (text, location) => {
  expect(parseLocation(text)).toEqual(location);
});

test('an environment and a path are one operand or two', () => {
  expect(guestOperands(['e:/a'])).toMatchObject({ id: 'e', path: '/a' });
  expect(guestOperands(['e', 'a'])).toEqual({ id: 'e', path: '/workspace/a' });
  expect(guestOperands(['e'])).toEqual({ id: 'e', path: '/workspace' });
  expect(() => guestOperands(['e:/a', '/b'])).toThrow('e:/a names the path already');
  expect(() => guestOperands(['e', '/a', '/b'])).toThrow('too many operands');
});
