/** Execs and processes as people read them. */
import type { Exec, ProcessInfo } from '@fuse/sdk';
import { formatAge, formatBytes, formatMs } from './format.ts';

export const execHeadings = ['ID', 'STATE', 'EXIT', 'STARTED', 'TOOK', 'COMMAND'] as const;

export function execRow(exec: Exec, nowMs: number): string[] {
  const startedMs = Date.parse(exec.created_at);
  return [
    exec.id,
    exec.state,
    exitText(exec),
    ago(nowMs - startedMs),
    exec.exit === undefined ? '' : formatMs(exec.exit.duration_ms),
    exec.command.join(' '),
  ];
}

function exitText({ exit }: Exec): string {
  if (exit === undefined) return '';
  if (exit.timed_out) return 'timed out';
  return exit.signal ?? String(exit.exit_code);
}

export const sessionHeadings = ['SESSION', 'STATE', 'SIZE', 'VIEWERS', 'STARTED', 'COMMAND'] as const;

export function sessionRow(exec: Exec, nowMs: number): string[] {
  const { rows = 0, cols = 0, viewers = 0 } = exec.tty ?? {};
  return [
    exec.id,
    exec.state,
    `${cols}x${rows}`,
    String(viewers),
    ago(nowMs - Date.parse(exec.created_at)),
    exec.command.join(' '),
  ];
}

export const processHeadings = ['PID', 'PPID', 'USER', 'STATE', 'CPU', 'MEMORY', 'STARTED', 'EXEC', 'COMMAND'] as const;

export function processRow(process: ProcessInfo, nowMs: number): string[] {
  return [
    String(process.pid),
    String(process.ppid),
    process.user,
    process.state,
    `${process.cpu_seconds.toFixed(2)} s`,
    formatBytes(process.memory_bytes),
    ago(nowMs - Date.parse(process.started_at)),
    process.exec_id ?? '',
    process.command.join(' '),
  ];
}

function ago(ms: number): string {
  const age = formatAge(ms);
  return age === 'now' ? age : `${age} ago`;
}
