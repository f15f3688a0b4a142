import { InvalidArgumentError } from 'commander';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runTarget } from './command-line.ts';
import { parseDurationMs, parseDurationSeconds, parseSecondsOrDuration } from './duration.ts';
import { parseInputSpec } from './input-spec.ts';
import { gatherEnv, gatherLabel, gatherPair } from './key-value.ts';
import { parsePositiveInt } from './number.ts';
import { programArgv } from './program.ts';
import { parseSizeGiB, parseSizeMiB } from './size.ts';
import { gatherExpose, gatherFile, parseHttpCheck } from './startup.ts';

const refuses = (parse: (text: string) => unknown, texts: readonly string[]) => {
  for (const text of texts) expect(() => parse(text), JSON.stringify(text)).toThrow(InvalidArgumentError);
};

describe('what a create puts into its environment', () => {
  it('names files by their path in the guest', () => {
    const one = gatherFile('/etc/app.conf=./app=1.conf');
    expect(gatherFile('in.txt=/tmp/in', one)).toEqual({
      '/etc/app.conf': './app=1.conf',
      '/workspace/in.txt': '/tmp/in',
    });
    refuses(gatherFile, ['', '/a', '=x', '/a=']);
  });

  it('exposes ports and checks one', () => {
    expect(gatherExpose('5432', gatherExpose('80:web'))).toEqual([{ port: 80, as: 'web' }, { port: 5_432 }]);
    refuses(gatherExpose, ['', '0', '65536', 'web:80', '80:', '80:not a name', '8.5']);
    expect(parseHttpCheck('8000')).toEqual({ port: 8_000 });
    expect(parseHttpCheck('8000/health?deep=1')).toEqual({ port: 8_000, path: '/health?deep=1' });
    refuses(parseHttpCheck, ['', '/health', 'x/health', '99999/']);
  });
});

describe('durations', () => {
  it('are numbers with units, added up', () => {
    const known = {
      '500ms': 500,
      '30s': 30_000,
      '5m': 300_000,
      '1h': 3_600_000,
      '1h30m': 5_400_000,
      '0.5s': 500,
      '1d': 86_400_000,
    };
    for (const [text, ms] of Object.entries(known)) expect(parseDurationMs(text)).toBe(ms);
    expect(parseDurationSeconds('1500ms')).toBe(2);
  });

  it('may be bare seconds where the API counts in them', () => {
    expect(['0', '90', '90s', '7d'].map(parseSecondsOrDuration)).toEqual([0, 90, 90, 604_800]);
    refuses(parseSecondsOrDuration, ['', '-1', '1.5', '1e3', '9'.repeat(13), 'x']);
  });

  it('without a unit, negative, empty, nothing or nonsense are refused', () => {
    refuses(parseDurationMs, [
      '',
      '5',
      '-5s',
      '0s',
      '0.1ms',
      '5 s',
      '5S',
      's',
      '5s x',
      'x5s',
      '1e3s',
      '5mins',
      `${'9'.repeat(400)}d`,
    ]);
  });
});

describe('sizes', () => {
  it('are binary and whole mebibytes', () => {
    const known = {
      '512M': 512,
      '512MB': 512,
      '512mib': 512,
      '2G': 2_048,
      '1.5G': 1_536,
      '2 GiB': 2_048,
      '1T': 1_048_576,
    };
    for (const [text, mib] of Object.entries(known)) expect(parseSizeMiB(text)).toBe(mib);
    expect(parseSizeGiB('1.5G')).toBe(2);
  });

  it('without a unit, broken, negative or nothing are refused', () => {
    refuses(parseSizeMiB, ['', '512', '0M', '-1G', '1.0001G', 'G', '1K', '1B', '1GG', '1 2G', `${'1'.repeat(30)}G`]);
  });
});

describe('counts', () => {
  it('are whole and at least 1', () => {
    expect(parsePositiveInt('12')).toBe(12);
    refuses(parsePositiveInt, ['', '0', '-1', '1.5', '1e3', 'x', '9'.repeat(20)]);
  });
});

describe('--env', () => {
  const gather = gatherEnv({ HOME: '/home/me', EMPTY: '' });

  it('sets a variable, keeps every "=" of its value, or passes on the one set here', () => {
    expect(gather('A=b=c', { X: 'y' })).toEqual({ X: 'y', A: 'b=c' });
    expect([gather('HOME'), gather('EMPTY'), gather('A=')]).toEqual([{ HOME: '/home/me' }, { EMPTY: '' }, { A: '' }]);
  });

  it('refuses what is no name, and names that are not set', () => {
    refuses(gather, ['', '=x', '1A=x', 'A-B=x', 'UNSET', 'A B']);
  });
});

describe('--label', () => {
  it('is a key and a value', () => {
    expect(gatherLabel('team=blue', { a: 'b' })).toEqual({ a: 'b', team: 'blue' });
    refuses(gatherLabel, ['', 'team', 'team=', '=blue', 'a=b=c', '-a=b', 'a=b c', `a=${'x'.repeat(64)}`]);
  });
});

describe('--metadata', () => {
  it('is a key and any value', () => {
    expect(
      ['a=', 'b c=x=y\n', 'a=2'].reduce<Readonly<Record<string, string>>>((soFar, text) => gatherPair(text, soFar), {}),
    ).toEqual({
      a: '2',
      'b c': 'x=y\n',
    });
    refuses(gatherPair, ['', 'a', '=a']);
  });
});

describe('--input', () => {
  const nothing = () => false;

  it('keeps the name unless told otherwise', () => {
    expect(parseInputSpec('data/in.csv', nothing)).toEqual({ local: 'data/in.csv', guest: 'in.csv' });
    expect(parseInputSpec('in.csv:/etc/x', nothing)).toEqual({ local: 'in.csv', guest: '/etc/x' });
    expect(parseInputSpec('in.csv:sub/', nothing)).toEqual({ local: 'in.csv', guest: 'sub/in.csv' });
    expect(parseInputSpec('.', nothing)).toEqual({ local: '.', guest: '' });
    expect(parseInputSpec('src/', nothing)).toEqual({ local: 'src/', guest: 'src' });
  });

  it('takes a name with colons for what it is when there is such a file', () => {
    expect(parseInputSpec('a:b', (path) => path === 'a:b')).toEqual({ local: 'a:b', guest: 'a:b' });
    expect(parseInputSpec('a:b:c', nothing)).toEqual({ local: 'a:b', guest: 'c' });
  });

  it('refuses nothing, and guest paths that go up', () => {
    refuses((text) => parseInputSpec(text, nothing), ['', 'a:../b', 'a:/x/../y']);
  });
});

describe('run FILE and run -- COMMAND', () => {
  it('are told apart by a "--" right before what is run', () => {
    expect(runTarget(['run', 'x.py', '--', 'a'], ['x.py', '--', 'a'])).toEqual({
      kind: 'file',
      path: 'x.py',
      args: ['--', 'a'],
    });
    expect(runTarget(['run', '--', 'x.py', 'a'], ['x.py', 'a'])).toEqual({ kind: 'command', argv: ['x.py', 'a'] });
    expect(runTarget(['run', '--', 'a', '--', 'b'], ['a', '--', 'b'])).toEqual({
      kind: 'command',
      argv: ['a', '--', 'b'],
    });
    expect(runTarget(['run', 'x.py'], ['x.py'])).toEqual({ kind: 'file', path: 'x.py', args: [] });
    expect(runTarget(['run', '--'], [])).toBeUndefined();
  });

  it('keep every argument', () => {
    fc.assert(
      fc.property(fc.array(fc.string(), { minLength: 1 }), (argv) => {
        expect(runTarget(['run', '--json', '--', ...argv], argv)).toEqual({ kind: 'command', argv });
      }),
    );
  });
});

describe('program files', () => {
  it('are run by their extension, else by their first line', () => {
    expect(programArgv('dir/x.py', '', ['--a'])).toEqual(['python3', '-u', '/workspace/x.py', '--a']);
    expect(programArgv('x.MJS', '', [])).toEqual(['node', '/workspace/x.MJS']);
    expect(programArgv('x.sh', 'echo', [])).toEqual(['sh', '/workspace/x.sh']);
    expect(programArgv('x.sh', '#!/bin/bash -e\necho', [])).toEqual(['/bin/bash', '-e', '/workspace/x.sh']);
    expect(programArgv('tool', '#! /usr/bin/env ruby\r\n', ['1'])).toEqual([
      '/usr/bin/env',
      'ruby',
      '/workspace/tool',
      '1',
    ]);
  });

  it('of other kinds are refused', () => {
    for (const head of ['', '#', '#!', '#!\n/bin/sh', '\x7fELF'])
      expect(() => programArgv('x.bin', head, [])).toThrow('do not know how');
  });
});
