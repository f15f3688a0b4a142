import { CutStreamError, FuseApiError, FuseConnectionError, type RunResult } from '@fuse/sdk';
import { describe, expect, it } from 'vitest';
import { CliError } from '../cli-error.ts';
import { exitCodeOf } from '../exit-code.ts';
import { errorText } from './error-text.ts';
import { formatBytes, formatMs, printable, properties, table } from './format.ts';
import { runSummary } from './run-summary.ts';

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
