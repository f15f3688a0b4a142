/** The host's half of the channel's handshake (host-protocol/guest.ts): read up to the greeting, send nothing before. */
import type { Duplex } from 'node:stream';
import { AppError } from '@fuse/contract';
import { GUEST_GREETING } from '@fuse/host-protocol';

const greeting = Buffer.from(GUEST_GREETING);
/** Bytes of an earlier connection that may still come; a guest that sends more is not waiting for us. */
const MAX_STALE_BYTES = 4_194_304;

/** Resolves with the stream at the first byte after the greeting, and nothing lost; rejects when it ends before, or `deadlineMs` pass. */
export function readGreeting(stream: Duplex, deadlineMs: number): Promise<void> {
  return new Promise((resolve, reject) => {
    let kept = Buffer.alloc(0);
    let passed = 0;
    const finish = (error?: Error) => {
      clearTimeout(timer);
      stream.off('readable', onReadable);
      stream.off('end', onEnd);
      stream.off('error', finish);
      stream.off('close', onEnd);
      if (error === undefined) resolve();
      else reject(error);
    };
    const onReadable = () => {
      for (let chunk: Buffer | null = stream.read(); chunk !== null; chunk = stream.read()) {
        kept = Buffer.concat([kept, chunk]);
        const at = kept.indexOf(greeting);
        if (at >= 0) {
          const rest = kept.subarray(at + greeting.length);
          finish();
          if (rest.length > 0) stream.unshift(rest);
          return;
        }
        const stale = Math.max(0, kept.length - greeting.length + 1);
        passed += stale;
        kept = kept.subarray(stale);
        if (passed > MAX_STALE_BYTES) finish(new AppError('unavailable', 'the guest sends bytes and no greeting'));
      }
    };
    const onEnd = () => finish(new AppError('unavailable', 'the guest channel closed before the greeting'));
    const timer = setTimeout(
      () => finish(new AppError('unavailable', `no greeting from the guest in ${deadlineMs} ms`)),
      deadlineMs,
    );
    stream.on('readable', onReadable);
    stream.on('end', onEnd);
    stream.on('close', onEnd);
    stream.on('error', finish);
  });
}
