import {
  CutStreamError,
  type EnvironmentInfo,
  FuseApiError,
  FuseConnectionError,
  type RunResult,
  type Snapshot,
} from '@fuse/sdk';
import { describe, expect, it } from 'vitest';
import { CliError } from '../cli-error.ts';
import { exitCodeOf } from '../exit-code.ts';
import { environmentText } from './environment-text.ts';
import { errorText } from './error-text.ts';
import { formatAge, formatBytes, formatMs, json, printable, properties, table } from './format.ts';
import { runSummary } from './run-summary.ts';
import { snapshotHeadings, snapshotRow, snapshotText } from './snapshot-text.ts';

const result = (fields: Partial<RunResult>): RunResult => ({
  id: 'run-1',
  state: 'succeeded',
  ok: true,
  exitCode: 0,
  signal: undefined,
  timedOut: false,
  oomKilled: false,
  stdout: '',
  stderr: '',
  stdoutBytes: 0,
  stderrBytes: 0,
  truncated: false,
  outputs: [],
  skippedOutputs: [],
  error: undefined,
  timings: {},
  run: {
    id: 'run-1',
    state: 'succeeded',
    image: 'base',
    limits: { cpus: 1, ram_mb: 512, storage_gb: 2, timeout_ms: 30_000 },
    encoding: 'utf8',
    outputs: [],
    timings: {},
    created_at: '',
    updated_at: '',
  },
  ...fields,
});

describe('json', () => {
  it('is the value, with nothing in it that a terminal could obey', () => {
    const value = { name: 'a\x1b[31m\x9b2J\u202e\u{e0041}é漢\n' };
    const text = json(value);
    expect(JSON.parse(text)).toEqual(value);
    expect(text.replaceAll('\n', '')).not.toMatch(/[\p{Cc}\p{Cf}]/u);
    expect(text).toContain('é漢');
  });
});

describe('numbers for people', () => {
  it('are short', () => {
    expect([0, 1_023, 1_024, 1_536, 1_048_575, 5 * 1024 ** 3].map(formatBytes)).toEqual([
      '0 B',
      '1023 B',
      '1.0 KiB',
      '1.5 KiB',
      '1.0 MiB',
      '5.0 GiB',
    ]);
    expect([0.4, 12.6, 999, 1_500, 59_940, 61_000, 7_260_000].map(formatMs)).toEqual([
      '0 ms',
      '13 ms',
      '999 ms',
      '1.5 s',
      '59.9 s',
      '1 min 1 s',
      '2 h 1 min',
    ]);
  });
});

describe('ages', () => {
  it('have one unit and are never negative', () => {
    const seconds = [-5, 0, 1, 119, 120, 7_199, 7_200, 172_799, 172_800, 864_000];
    expect(seconds.map((each) => formatAge(each * 1_000))).toEqual([
      'now',
      'now',
      '1 s',
      '119 s',
      '2 min',
      '119 min',
      '2 h',
      '47 h',
      '2 d',
      '10 d',
    ]);
  });
});

const AT = '2026-01-01T00:00:00.000Z';

describe('snapshots', () => {
  const snapshot: Snapshot = {
    id: 'snap-1',
    vm_id: 'fuse-demo',
    mode: 'manual',
    state: 'ready',
    include_memory: true,
    image: 'base',
    spec: {},
    created_at: AT,
    updated_at: AT,
  };

  it('are rows with sizes and ages, whatever is unknown yet', () => {
    const cells = (fields: Partial<Snapshot>) => {
      const row = snapshotRow(Date.parse(AT) + 90_000)({ ...snapshot, ...fields });
      expect(row).toHaveLength(snapshotHeadings.length);
      return row.join('|');
    };
    expect(cells({ size_bytes: 3 * 1024 ** 3, stored_bytes: 5, name: 'n', comment: 'c' })).toBe(
      'snap-1|ready|fuse-demo|n|manual|3.0 GiB|5 B|90 s|c',
    );
    expect(cells({ state: 'error', last_error: 'bad digest', comment: 'c' })).toMatch(/\|error: bad digest$/);
    expect(cells({ state: 'creating' })).toBe('snap-1|creating|fuse-demo||manual|||90 s|');
  });

  it('say what they hold, what that cost, and what went wrong', () => {
    const text = snapshotText({
      ...snapshot,
      state: 'error',
      include_memory: false,
      pause_ms: 41.4,
      last_error: 'memory: bad digest\u001b',
      exports: [{ destination: 'store', status: 'error', last_error: 'full', requested_at: AT, updated_at: AT }],
    });
    for (const line of [/^error +memory: bad digest\\u\{1b\}$/m, /^holds +disk alone$/m, /^stood still +41 ms$/m])
      expect(text).toMatch(line);
    expect(text).toMatch(/^export +store error full$/m);
  });
});

describe('environments', () => {
  it('say how they rest and what is kept of them', () => {
    const environment: EnvironmentInfo = {
      id: 'fuse-demo',
      state: 'paused',
      task_id: 'demo',
      url: '',
      spec: { idle_timeout_seconds: 600 },
      seed_snapshot_id: 'snap-1',
      paused_at: AT,
      idle_action: 'pause',
      auto_resume: true,
      checkpoint_interval_seconds: 30,
      checkpoint_keep: 2,
      created_at: AT,
      updated_at: AT,
    };
    const text = environmentText(environment);
    for (const line of [
      /^seed +snap-1$/m,
      /^when idle +pause after 10 min 0 s$/m,
      /^auto resume +yes$/m,
      /^checkpoints +every 30\.0 s, the last 2 kept$/m,
      /^paused +2026/m,
    ])
      expect(text).toMatch(line);
    const plain = environmentText({ ...environment, state: 'running', spec: {}, checkpoint_interval_seconds: 0 });
    expect(plain).not.toMatch(/when idle|checkpoints/);
  });
});

describe('text from guests', () => {
  it('cannot steer a terminal', () => {
    expect(printable('a\u001b[2Jb\nc\u202ed')).toBe('a\\u{1b}[2Jb\\nc\\u{202e}d');
    expect(printable('plain — ✓')).toBe('plain — ✓');
    expect(table(['NAME'], [['x\u001b]0;evil\u0007']])).toBe('NAME\nx\\u{1b}]0;evil\\u{7}\n');
  });
});

describe('tables and properties', () => {
  it('line up', () => {
    expect(
      table(
        ['ID', 'STATE'],
        [
          ['a', 'running'],
          ['long-id', ''],
        ],
      ),
    ).toBe('ID       STATE\na        running\nlong-id\n');
    expect(properties({ a: 'x', longer: undefined, bb: 'y' })).toBe('a   x\nbb  y\n');
  });
});

describe('exit codes', () => {
  it('are the command’s own, or say why there is none', () => {
    expect(exitCodeOf(result({ exitCode: 3, state: 'failed' }))).toBe(3);
    expect(exitCodeOf(result({ exitCode: 137, signal: 'SIGKILL', state: 'failed' }))).toBe(137);
    expect(exitCodeOf(result({ exitCode: 137, state: 'timed_out' }))).toBe(124);
    expect(exitCodeOf(result({ exitCode: undefined, state: 'cancelled' }))).toBe(130);
    expect(exitCodeOf(result({ exitCode: 0, state: 'failed', error: { code: 'save_failed', message: '' } }))).toBe(1);
    expect(exitCodeOf(result({ exitCode: undefined, state: 'failed', error: { code: 'vm_lost', message: '' } }))).toBe(
      1,
    );
  });
});

describe('the summary of a run', () => {
  it('names the end, the outputs, what was not saved, and the times', () => {
    const lines = runSummary(
      result({
        exitCode: 1,
        oomKilled: true,
        skippedOutputs: [{ path: 'link\u001b', reason: 'symlink' }],
        timings: { admit_ms: 3, run_ms: 1_500 },
      }),
      [{ path: 'a', file: 'outputs/a', size_bytes: 10, sha256: '' }],
    );
    expect(lines).toEqual([
      'run-1: exit 1, out of memory',
      '  outputs/a  10 B',
      '  not saved: link\\u{1b}: it is a symbolic link',
      '  admit 3 ms · run 1.5 s',
    ]);
  });

  it('says what happened when there is no exit code', () => {
    expect(runSummary(result({ state: 'timed_out' }), [])).toEqual(['run-1: timed out after 30.0 s']);
    expect(runSummary(result({ state: 'failed', error: { code: 'vm_lost', message: 'the VM died' } }), [])).toEqual([
      'run-1: failed: vm_lost: the VM died',
    ]);
  });
});

describe('errors', () => {
  const api = (status: number, code: string, hint?: string) =>
    new FuseApiError({ status, code, reason: 'why', hint, requestId: 'req_1' });

  it('are a sentence and a hint', () => {
    expect(errorText(new CliError('no', { hint: 'try' }))).toBe('no\nhint: try\n');
    expect(errorText(api(404, 'not_found'))).toBe('not found: why\n');
    expect(errorText(api(400, 'invalid_argument', 'try'))).toBe('invalid argument: why\nhint: try\n');
    expect(errorText(api(403, 'unauthorized'))).toBe('forbidden: why\n');
    expect(errorText(api(500, 'internal'))).toBe('why (request id: req_1)\n');
    expect(errorText(api(404, 'route_not_found'))).toContain('is this the orchestrator?');
  });

  it('of connections say what to do', () => {
    expect(errorText(new FuseConnectionError('gone', { sent: false }))).toContain('fuse local up');
    expect(errorText(new CutStreamError('run-1', 'e', undefined))).toContain(
      'hint: it may still be going on: fuse runs get run-1',
    );
  });
});
