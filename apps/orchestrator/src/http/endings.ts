/** How an upgraded connection ends, from what went wrong. */
import { FrameError, MAX_FRAME_PAYLOAD_BYTES, webSocketClose } from '@fuse/contract';
import { isClientGone, toAppError } from './error-responses.ts';
import { type Ending, ServerStops } from './peer.ts';

const APP_ERROR = 4_000;
export const INTERNAL = APP_ERROR + 500;

export const done = (reason: string): Ending => ({ code: webSocketClose.done, reason });

/** Ends a connection with a code of its own. */
export class EndedBy extends Error {
  override readonly name = 'EndedBy';
  readonly ending: Ending;

  constructor(ending: Ending) {
    super(ending.reason);
    this.ending = ending;
  }
}

export function endingOf(error: unknown): Ending {
  if (error instanceof EndedBy) return error.ending;
  if (error instanceof ServerStops) return { code: webSocketClose.restart, reason: 'the server restarts' };
  if (isClientGone(error)) return done('the client left');
  if (error instanceof FrameError) {
    const isTooBig = error.message.endsWith(`over ${MAX_FRAME_PAYLOAD_BYTES}`);
    return { code: isTooBig ? webSocketClose.tooBig : webSocketClose.badFrame, reason: error.message };
  }
  const shown = toAppError(error);
  if (shown === undefined) return { code: INTERNAL, reason: 'internal: internal error' };
  if (shown.code === 'vm_lost') return { code: webSocketClose.lost, reason: shown.message };
  return { code: APP_ERROR + shown.status, reason: `${shown.code}: ${shown.message}` };
}
