/**
 * Makes a restored or booted guest a machine of its own: time, randomness, names, and the image's own hooks. It is handed over only once it
 * has confirmed all of it and its clock is right. A hook that fails is told to the log and holds nothing up.
 */
import { randomBytes } from 'node:crypto';
import { AppError } from '@fuse/contract';
import { type GuestIdentity, type GuestIdentityConfirmed, USUAL_NETWORK } from '@fuse/host-protocol';
import { DeadlineError, type Logger, withDeadline } from '@fuse/runtime';
import type { Guest } from '../guest/guest.ts';

/** How far a clock may be off when the answer arrives, the way of the answer included. The promise is 500 ms. */
const MAX_CLOCK_OFFSET_MS = 400;
const ATTEMPTS = 10;
const ENTROPY_BYTES = 64;
/** Milliseconds on an idle machine; long enough for one that starts twenty VMs at once under emulation. */
const CONFIRMATION_MS = 30_000;
const HOOKS_DEADLINE_MS = 5_000;

export interface NewMachine {
  hostname: string;
  /** Of the VM's last identity that is known here; 0 for none. */
  previousGeneration: number;
  reason: 'create' | 'fork' | 'restore' | 'resume';
  /** Hardware address of its card, where it has one. */
  mac?: string | undefined;
  log: Logger;
  /** For all hooks together; nothing of it passes where there are none. */
  hooksDeadlineMs?: number;
  /** For the rest of it. */
  confirmationMs?: number;
}

export async function handOver(
  guest: Guest,
  machine: NewMachine,
  signal: AbortSignal,
): Promise<{ generation: number }> {
  const deadlineMs = (machine.confirmationMs ?? CONFIRMATION_MS) + (machine.hooksDeadlineMs ?? HOOKS_DEADLINE_MS);
  try {
    return await withDeadline(
      deadlineMs,
      'its new identity',
      (inner) => confirmIdentity(guest, machine, inner),
      signal,
    );
  } catch (cause) {
    if (!(cause instanceof DeadlineError)) throw cause;
    throw new AppError('unavailable', `the guest did not confirm its new identity in ${deadlineMs} ms`, { cause });
  }
}

async function confirmIdentity(
  guest: Guest,
  machine: NewMachine,
  signal: AbortSignal,
): Promise<{ generation: number }> {
  let identity = newIdentity(machine, Math.max(machine.previousGeneration + 1, Date.now()));
  for (let attempt = 1; ; attempt++) {
    const confirmed = await unlessOutdated(guest.identity({ ...identity, ...freshTimeAndEntropy() }, signal));
    if (confirmed === 'outdated') {
      // Its memory comes from a host whose clock is ahead of ours.
      const { generation } = await guest.health(signal);
      identity = { ...identity, generation: generation + 1 };
    } else {
      if (confirmed.generation !== identity.generation || confirmed.hostname !== identity.hostname)
        throw new AppError('unavailable', 'the guest did not take its new identity');
      if (Math.abs(clockOffsetMs(confirmed.time_unix_ns)) <= MAX_CLOCK_OFFSET_MS) {
        reportHooks(confirmed.hooks ?? [], machine);
        return { generation: identity.generation };
      }
    }
    if (attempt === ATTEMPTS) throw new AppError('unavailable', `the guest's clock or generation stays wrong`);
  }
}

async function unlessOutdated(answer: Promise<GuestIdentityConfirmed>): Promise<GuestIdentityConfirmed | 'outdated'> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof AppError && error.code === 'conflict') return 'outdated';
    throw error;
  }
}

function newIdentity(machine: NewMachine, generation: number): GuestIdentity {
  return {
    ...freshTimeAndEntropy(),
    hostname: machine.hostname,
    machine_id: randomBytes(16).toString('hex'),
    generation,
    reason: machine.reason,
    ...(machine.mac === undefined ? {} : { network: { ...USUAL_NETWORK, mac: machine.mac } }),
    hooks_deadline_ms: machine.hooksDeadlineMs ?? HOOKS_DEADLINE_MS,
  };
}

const freshTimeAndEntropy = (): Pick<GuestIdentity, 'time_unix_ns' | 'entropy_base64'> => ({
  time_unix_ns: String(BigInt(Date.now()) * 1_000_000n),
  entropy_base64: randomBytes(ENTROPY_BYTES).toString('base64'),
});

/** How far the guest is ahead; NaN when its word is no number. */
function clockOffsetMs(guestTimeNs: string): number {
  if (!/^\d{1,19}$/.test(guestTimeNs)) return Number.NaN;
  return Number(BigInt(guestTimeNs) / 1_000_000n) - Date.now();
}

function reportHooks(hooks: NonNullable<GuestIdentityConfirmed['hooks']>, machine: NewMachine): void {
  for (const { name, exit_code, timed_out, output } of hooks) {
    const fields = { hostname: machine.hostname, hook: name, exit_code, timed_out };
    if (exit_code === 0 && !timed_out) machine.log.info(fields, 'hook ran');
    else machine.log.warn({ ...fields, output }, 'hook failed');
  }
}
