import { setFlagsFromString } from 'node:v8';

/**
 * For a service, at its start. Bytes that pass through a process lie outside of V8's heap but count towards the limit at which V8 collects all of it, and by itself
 * V8 sets that limit 8 MB above a heap that does not grow: a stream then costs a full collection for every 8 MB of buffers, more processor time
 * than everything else that is done with them. With this the heap may reach two and a half times what lives in it; for bytes outside V8 keeps its own limit
 * of 64 MB.
 */
export function letHeapGrow(): void {
  setFlagsFromString('--heap-growing-percent=150');
}
