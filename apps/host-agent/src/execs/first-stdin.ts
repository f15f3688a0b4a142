/** The stdin that came with the start of an exec, from its file to the guest, exactly once whatever is cut in between. */
import { createReadStream } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
import { AppError } from '@fuse/contract';
import { sleep } from '@fuse/runtime';
import type { Guest } from '../guest/guest.ts';
import { isMissing } from '../vms/atomic-file.ts';
import { stdinPath } from './exec-record.ts';

const RETRY_MS = 100;

/** Only this user may read it: it may hold secrets. */
export async function keepFirstStdin(directory: string, base64: string): Promise<void> {
  await writeFile(stdinPath(directory), Buffer.from(base64, 'base64'), { mode: 0o600 });
}

export async function forgetFirstStdin(directory: string): Promise<void> {
  await rm(stdinPath(directory), { force: true });
}

export interface FirstStdin {
  directory: string;
  /** As the guest knows the exec. */
  guestId: string;
  /** Nothing comes behind it. */
  end: boolean;
  guest: (signal: AbortSignal) => Promise<Guest>;
}

/** Resolves once the command has it, or takes no more. Throws the signal's reason. */
export async function feedFirstStdin(
  { directory, guestId, end, guest }: FirstStdin,
  signal: AbortSignal,
): Promise<void> {
  for (let from = 0; ; ) {
    try {
      const body = createReadStream(stdinPath(directory), { start: from });
      await (await guest(signal)).writeStdin(guestId, { offset: from, end }, body, signal);
      return;
    } catch (error) {
      signal.throwIfAborted();
      // Another host agent has seen to it.
      if (isMissing(error)) return;
      if (error instanceof AppError && !['unavailable', 'vm_lost', 'deadline_exceeded'].includes(error.code)) return;
    }
    await sleep(RETRY_MS, signal);
    from = await bytesTaken(guestId, guest, signal).catch(() => from);
  }
}

async function bytesTaken(
  guestId: string,
  guest: (signal: AbortSignal) => Promise<Guest>,
  signal: AbortSignal,
): Promise<number> {
  return (await (await guest(signal)).execStatus(guestId, signal)).stdin_bytes;
}
