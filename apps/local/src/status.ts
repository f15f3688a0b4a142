/** `fuse local status`. */

import { readFile } from 'node:fs/promises';
import { FuseClient } from '@fuse/sdk';
import { vmsLeft } from './down.ts';
import { say } from './failure.ts';
import type { Home } from './home.ts';
import { type HostReport, hostReport, warningsOf } from './host-report.ts';
import { type LocalStack, runningStack } from './local-file.ts';

const ANSWER_MS = 5_000;

export interface Status {
  state: 'up' | 'down' | 'unwell';
  url?: string;
  pid?: number;
  started_at?: string;
  uptime_seconds?: number;
  log?: string;
  environments?: number;
  host?: HostReport;
  /** What is wrong when it is unwell. */
  problem?: string;
  /** VMs that a crash left, when it is down. */
  vms_left?: number;
}

/** Returns the exit code: 0 when it is up, 1 when not. */
export async function status(home: Home, { json }: { json: boolean }): Promise<number> {
  const found = await statusOf(home);
  if (json) process.stdout.write(`${JSON.stringify(found, null, 2)}\n`);
  else describe(found);
  return found.state === 'up' ? 0 : 1;
}

async function statusOf(home: Home): Promise<Status> {
  const stack = await runningStack(home);
  if (stack === undefined) {
    const { processes } = await vmsLeft(home);
    return { state: 'down', ...(processes.length === 0 ? {} : { vms_left: processes.length }) };
  }
  const common = {
    url: stack.url,
    pid: stack.pid,
    started_at: stack.started_at,
    uptime_seconds: Math.max(0, Math.round((Date.now() - Date.parse(stack.started_at)) / 1_000)),
    ...(stack.log === undefined ? {} : { log: stack.log }),
  };
  try {
    const [environments, host] = await Promise.all([countEnvironments(home, stack), hostReport(stack)]);
    return { state: 'up', ...common, environments, host };
  } catch (error) {
    return { state: 'unwell', ...common, problem: error instanceof Error ? error.message : String(error) };
  }
}

async function countEnvironments(home: Home, stack: LocalStack): Promise<number> {
  const token = (await readFile(home.token, 'utf8')).trim();
  const client = new FuseClient({ baseUrl: stack.url, token, retries: 0 });
  return (await client.environments.list({ signal: AbortSignal.timeout(ANSWER_MS) })).length;
}

function describe(found: Status): void {
  const { host } = found;
  const lines: [string, string | undefined][] = [
    ['state', found.state],
    ['url', found.url],
    ['pid', found.pid?.toString()],
    ['uptime', found.uptime_seconds === undefined ? undefined : uptime(found.uptime_seconds)],
    ['environments', found.environments?.toString()],
    ['VMs', host && `${host.used.vm_count} of ${host.capacity.vm_count}`],
    ['CPUs', host && `${host.used.cpus} of ${host.capacity.cpus}`],
    ['memory', host && `${host.used.ram_mb} of ${host.capacity.ram_mb} MB`],
    ['disk', host && `${host.capacity.storage_gb} GB`],
    ['accelerator', host?.accelerator],
    ['confined', host?.confined === undefined ? undefined : host.confined ? 'yes' : 'no'],
    ['log', found.log],
    ['problem', found.problem],
  ];
  for (const [name, value] of lines) if (value !== undefined) process.stdout.write(`${name.padEnd(12)}  ${value}\n`);
  if (host !== undefined) for (const warning of warningsOf(host)) say(warning);
  if (found.state === 'down') say('hint: fuse local up starts it');
  if (found.vms_left !== undefined)
    say(
      `${found.vms_left} VMs of a stack that ended by itself are still running: fuse local up takes them over, down ends them`,
    );
}

function uptime(seconds: number): string {
  const parts = [
    [Math.floor(seconds / 86_400), 'd'],
    [Math.floor(seconds / 3_600) % 24, 'h'],
    [Math.floor(seconds / 60) % 60, 'min'],
    [seconds % 60, 's'],
  ] as const;
  const shown = parts.filter(([count]) => count > 0).slice(0, 2);
  return shown.map(([count, unit]) => `${count} ${unit}`).join(' ') || '0 s';
}
