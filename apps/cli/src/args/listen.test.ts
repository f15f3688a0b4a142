import { expect, it } from 'vitest';
import { parseListenAddress } from './listen.ts';

it('reads a host and a port, and nothing else', () => {
  expect(parseListenAddress('127.0.0.1:0')).toEqual({ host: '127.0.0.1', port: 0 });
  expect(parseListenAddress('localhost:6080')).toEqual({ host: 'localhost', port: 6080 });
  expect(parseListenAddress('[::1]:65535')).toEqual({ host: '::1', port: 65_535 });
  for (const wrong of [
    '',
    '6080',
    ':6080',
    'localhost',
    'localhost:',
    'a:65536',
    '::1:80',
    '[::1]',
    'a b:1',
    'a:-1',
    '[x]:1',
  ])
    expect(() => parseListenAddress(wrong), wrong).toThrow('HOST:PORT');
});
