/**
 * Where a reader of a run's events stands, and its text form (the SSE id, opaque to clients).
 *
 * State events are rows of `events`, in the order of their ids. Output is one frame stream (contract/frames.ts) that lies between the
 * `running` row and whatever row follows it. A position is therefore the last row delivered, and how far the frame stream was:
 * the start of a frame and the payload bytes of it that were delivered already, or `end` when all of it was.
 */

export interface FramePosition {
  /** Bytes from the start of the stream to the start of a frame. */
  frameStart: number;
  /** Payload bytes of that frame that were delivered. */
  within: number;
}

export interface EventPosition {
  /** Id of the last `events` row delivered; 0: none. */
  row: number;
  output: FramePosition | 'end';
}

export const START: EventPosition = { row: 0, output: { frameStart: 0, within: 0 } };

export function formatPosition({ row, output }: EventPosition): string {
  return output === 'end' ? `${row}.end` : `${row}.${output.frameStart}.${output.within}`;
}

/** Undefined: no id of such a stream. */
export function parsePosition(text: string | undefined): EventPosition | undefined {
  if (text === undefined || text === '') return START;
  const match = /^(\d{1,15})\.(?:(end)|(\d{1,15})\.(\d{1,7}))$/.exec(text);
  if (match === null) return undefined;
  const row = Number(match[1]);
  if (match[2] === 'end') return { row, output: 'end' };
  return { row, output: { frameStart: Number(match[3]), within: Number(match[4]) } };
}
