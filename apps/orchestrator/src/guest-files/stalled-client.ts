import type { IncomingMessage } from 'node:http';

/** Long enough for somebody who looks at what came, or for a source that is slow to begin; not for ever: the guest has a file open meanwhile. */
export const STALLED_MS = 600_000;

/** The connection ends when nothing goes either way for so long. */
export function endWhenStalled(request: IncomingMessage): void {
  request.setTimeout(STALLED_MS, () => request.destroy(new Error(`nothing came or went for ${STALLED_MS} ms`)));
}
