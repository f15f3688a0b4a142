/** What `fuse run` says when the run has ended, on stderr. */
import type { RunResult, RunTimings } from '@fuse/sdk';
import type { SavedOutput } from '../files/save-outputs.ts';
import { formatBytes, formatMs, printable } from './format.ts';

const reasons: Record<string, string> = {
  symlink: 'it is a symbolic link',
  not_a_regular_file: 'it is not a regular file',
  too_large: 'it is too large',
  too_many: 'there were too many',
  total_too_large: 'all together were too large',
  changed_while_read: 'it changed while it was read',
  unreadable: 'it could not be read',
  bad_name: 'its name is not text',
};

export function runSummary(result: RunResult, saved: readonly SavedOutput[]): string[] {
  const lines = [`${result.id}: ${verdict(result)}`];
  const width = Math.max(0, ...saved.map((output) => printable(output.file).length));
  for (const output of saved)
    lines.push(`  ${printable(output.file).padEnd(width)}  ${formatBytes(output.size_bytes)}`);
  for (const { path, reason } of result.skippedOutputs)
    lines.push(`  not saved: ${printable(path)}: ${reasons[reason] ?? reason}`);
  const timings = timingsLine(result.timings);
  if (timings !== '') lines.push(`  ${timings}`);
  return lines;
}

function verdict(result: RunResult): string {
  if (result.error !== undefined) return `failed: ${result.error.code}: ${printable(result.error.message)}`;
  switch (result.state) {
    case 'timed_out':
      return `timed out after ${formatMs(result.run.limits.timeout_ms)}`;
    case 'cancelled':
      return 'cancelled';
    default: {
      const killed = result.oomKilled ? ', out of memory' : result.signal === undefined ? '' : `, ${result.signal}`;
      return `exit ${result.exitCode ?? '?'}${killed}`;
    }
  }
}

const phases: readonly (readonly [string, keyof RunTimings])[] = [
  ['admit', 'admit_ms'],
  ['queue', 'queue_ms'],
  ['start', 'start_ms'],
  ['run', 'run_ms'],
  ['save', 'save_ms'],
  ['destroy', 'destroy_ms'],
];

export function timingsLine(timings: RunTimings): string {
  return phases
    .flatMap(([name, key]) => {
      const ms = timings[key];
      return ms === undefined || (key === 'queue_ms' && ms < 1) ? [] : [`${name} ${formatMs(ms)}`];
    })
    .join(' · ');
}
