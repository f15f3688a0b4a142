/** One exec's log on the host, while it grows. What `keep` of StartExec means is in frame-spool.ts (head) and ends-spool.ts (ends). */
import type { GuestExecExit } from '@fuse/host-protocol';
import type { LogView } from './log-parts.ts';

export interface Spool extends LogView {
  /** Whether anything of the command's output is, or was, here. */
  readonly begun: boolean;
  readonly truncated: boolean;
  /** Read from the disk when it was opened. */
  readonly exitInFile: GuestExecExit | undefined;
  /** Everything of the guest's stream below it is safe here, or dropped for good. */
  readonly guestOffset: number;
  /** Where a new conversation starts, given what the guest keeps. */
  resumeAt(guestAckedOffset: number): number | Promise<number>;
  /** Resolves when all that is kept of the chunk is written. Throws FrameError when the guest breaks the format, SpoolError, the signal's reason. */
  take(chunk: Uint8Array, signal: AbortSignal): Promise<GuestExecExit | undefined>;
  /** The guest told the end outside the stream. */
  takeExit(exit: GuestExecExit): Promise<GuestExecExit>;
  recent(position: number): Uint8Array | undefined;
  close(): Promise<void>;
}

/** What the host's own disk refused. Nothing that another try would mend. */
export class SpoolError extends Error {
  override readonly name = 'SpoolError';
}
