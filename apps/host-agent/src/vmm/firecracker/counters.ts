/**
 * Firecracker's counters. It writes a line of JSON a minute, what was counted since the line before, into a pipe that holds 64 KiB: nobody need read it, and a VMM cannot fill
 * anything. Lines are summed here.
 */
import { closeSync, constants, openSync, readSync } from 'node:fs';
import { runProgram } from '../children.ts';

/** What tells something of a VM's health, or of a guest that tries things. */
const watched = [
  'seccomp.num_faults',
  'vcpu.failures',
  'block.execute_fails',
  'block.rate_limiter_throttled_events',
  'net.tx_fails',
  'net.rx_fails',
  'net.tx_rate_limiter_throttled',
  'net.rx_rate_limiter_throttled',
  'net.tx_spoofed_mac_count',
  'vsock.conns_added',
  'vsock.conns_killed',
  'vsock.rx_queue_event_fails',
  'uart.rate_limiter_dropped_bytes',
  'logger.missed_log_count',
  'logger.missed_metrics_count',
] as const;
export type CounterName = (typeof watched)[number];

const READ_BYTES = 65_536;
const MAX_READS = 8;
const MAX_LINE_BYTES = 65_536;

export async function makeCounterPipe(path: string): Promise<void> {
  await runProgram('mkfifo', ['-m', '600', '--', path], { path: '/usr/bin:/bin' });
}

export class Counters {
  readonly #path: string;
  readonly #totals = new Map<CounterName, number>();
  #rest = '';

  constructor(pipePath: string) {
    this.#path = pipePath;
  }

  /** Those that are not zero. */
  get totals(): Readonly<Partial<Record<CounterName, number>>> {
    return Object.fromEntries(this.#totals);
  }

  /** Takes what has been written. Waits for nothing; a pipe that is gone has nothing. */
  collect(): void {
    let fd: number;
    try {
      fd = openSync(this.#path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW);
    } catch {
      return;
    }
    try {
      const buffer = Buffer.allocUnsafe(READ_BYTES);
      for (let reads = 0; reads < MAX_READS; reads++) {
        const bytes = readSync(fd, buffer, 0, READ_BYTES, null);
        if (bytes === 0) return;
        this.#take(buffer.toString('utf8', 0, bytes));
      }
    } catch {
      // EAGAIN: nothing more at the moment
    } finally {
      closeSync(fd);
    }
  }

  #take(text: string): void {
    const lines = (this.#rest + text).split('\n');
    this.#rest = lines.pop() ?? '';
    if (this.#rest.length > MAX_LINE_BYTES) this.#rest = '';
    for (const line of lines) this.#add(line);
  }

  #add(line: string): void {
    let parsed: unknown;
    try {
      parsed = JSON.parse(line);
    } catch {
      return; // the end of a line whose beginning was not read
    }
    for (const name of watched) {
      const [group = '', key = ''] = name.split('.');
      const value = field(field(parsed, group), key);
      if (typeof value === 'number' && Number.isSafeInteger(value) && value > 0)
        this.#totals.set(name, (this.#totals.get(name) ?? 0) + value);
    }
  }
}

function field(object: unknown, key: string): unknown {
  if (typeof object !== 'object' || object === null || !Object.hasOwn(object, key)) return undefined;
  return (object as Record<string, unknown>)[key]; // an own field, of an unknown type
}
