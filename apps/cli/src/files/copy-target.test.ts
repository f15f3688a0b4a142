import { expect, test } from 'vitest';
import { copyTarget } from './copy-target.ts';

const file = (path: string) => ({ path, isDirectory: false });
const directory = (path: string) => ({ path, isDirectory: true });

test.each([
  [file('a.txt'), { path: '/w/b.txt', is: undefined }, '/w/b.txt'],
  [file('a.txt'), { path: '/w/b.txt', is: 'file' }, '/w/b.txt'],
  [file('x/a.txt'), { path: '/w', is: 'directory' }, '/w/a.txt'],
  [file('x/a.txt'), { path: '/w/', is: 'directory' }, '/w/a.txt'],
  [directory('src'), { path: '/w/new', is: undefined }, '/w/new'],
  [directory('src/'), { path: '/w/new/', is: undefined }, '/w/new'],
  [directory('src'), { path: '/w', is: 'directory' }, '/w/src'],
  [directory('src/'), { path: '/w/', is: 'directory' }, '/w/src'],
  [directory('src/.'), { path: '/w', is: 'directory' }, '/w'],
  [directory('.'), { path: '/', is: 'directory' }, '/'],
] as const)('%o to %o is %s', (source, destination, target) => {
  expect(copyTarget(source, destination)).toBe(target);
});

test.each([
  [file('a'), { path: '/w/new/', is: undefined }, '/w/new/ does not exist'],
  [file('a'), { path: '/w/b/', is: 'file' }, '/w/b/ is not a directory'],
  [directory('src'), { path: '/w/b', is: 'file' }, '/w/b is a file, and src is a directory'],
  [directory('..'), { path: '/w', is: 'directory' }, '.. has no name of its own to be copied under'],
] as const)('%o to %o is refused', (source, destination, message) => {
  expect(() => copyTarget(source, destination)).toThrow(message);
});
