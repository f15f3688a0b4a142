/**
 * Makes a restored or booted guest a machine of its own: time, randomness, names. It is handed over only once it has confirmed all of it
 * and its clock is right.
 */
import { randomBytes } from 'node:crypto';
import { AppError } from '@fuse/contract';
import type { GuestIdentity } from '@fuse/host-protocol';
import type { Guest } from '../guest/guest.ts';

/** The clock is set to the time of asking, so a slow answer leaves it behind. The promise is 500 ms. */
const MAX_CLOCK_OFFSET_MS = 400;
const ATTEMPTS = 10;
const ENTROPY_BYTES = 64;

export async function handOver(
  guest: Guest,
  machine: { hostname: string; previousGeneration: number },
  signal: AbortSignal,
): Promise<{ generation: number }> {
  let generation = machine.previousGeneration;
  for (let attempt = 1; ; attempt++) {
    generation = Math.max(generation + 1, Date.now());
    const confirmed = await guest.identity(newIdentity(machine.hostname, generation), signal);
    if (confirmed.generation !== generation || confirmed.hostname !== machine.hostname)
      throw new AppError('unavailable', 'the guest did not take its new identity');
    const offsetMs = clockOffsetMs(confirmed.time_unix_ns);
    if (Math.abs(offsetMs) <= MAX_CLOCK_OFFSET_MS) return { generation };
    if (attempt === ATTEMPTS) throw new AppError('unavailable', `the guest's clock stays ${offsetMs} ms off`);
  }
}

/** How far the guest is ahead; NaN when its word is no number. */
function clockOffsetMs(guestTimeNs: string): number {
  if (!/^\d{1,19}$/.test(guestTimeNs)) return Number.NaN;
  return Number(BigInt(guestTimeNs) / 1_000_000n) - Date.now();
}

function newIdentity(hostname: string, generation: number): GuestIdentity {
  return {
    time_unix_ns: String(BigInt(Date.now()) * 1_000_000n),
    entropy_base64: randomBytes(ENTROPY_BYTES).toString('base64'),
    hostname,
    machine_id: randomBytes(16).toString('hex'),
    generation,
  };
}
