/**
 * Makes a restored or booted guest a machine of its own: time, randomness, names. It is handed over only once it has confirmed all of it
 * within the deadline.
 */
import { randomBytes } from 'node:crypto';
import { AppError } from '@fuse/contract';
import type { GuestIdentity } from '@fuse/host-protocol';
import type { Guest } from '../guest/guest.ts';

/** The guest's clock is set to the time of asking: an answer that took longer leaves it too far behind. */
const MAX_CLOCK_LAG_MS = 400;
const ATTEMPTS = 3;
const CLOCK_TOLERANCE_MS = 50;
const ENTROPY_BYTES = 64;

export async function handOver(
  guest: Guest,
  machine: { hostname: string; previousGeneration: number },
  signal: AbortSignal,
): Promise<{ generation: number }> {
  let generation = machine.previousGeneration;
  for (let attempt = 1; ; attempt++) {
    generation = Math.max(generation + 1, Date.now());
    const askedAt = performance.now();
    const identity = newIdentity(machine.hostname, generation);
    const confirmed = await guest.identity(identity, signal);
    if (confirmed.generation !== generation || confirmed.hostname !== machine.hostname)
      throw new AppError('unavailable', 'the guest did not take its new identity');
    const lagMs = performance.now() - askedAt;
    const driftMs = clockDriftMs(identity.time_unix_ns, confirmed.time_unix_ns);
    if (!(driftMs >= -CLOCK_TOLERANCE_MS && driftMs <= lagMs + CLOCK_TOLERANCE_MS))
      throw new AppError('unavailable', `the guest's clock is off right after it was set, by ${driftMs} ms`);
    if (lagMs <= MAX_CLOCK_LAG_MS || attempt === ATTEMPTS) return { generation };
  }
}

/** NaN when the guest's word is no number. */
function clockDriftMs(sentNs: string, confirmedNs: string): number {
  if (!/^\d{1,19}$/.test(confirmedNs)) return Number.NaN;
  return Number((BigInt(confirmedNs) - BigInt(sentNs)) / 1_000_000n);
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
