/** `ID:/path` in an environment, a local path, or `-`. */
import { usageError } from '../cli-error.ts';

export type Location =
  | { kind: 'guest'; id: string; path: string }
  | { kind: 'local'; path: string }
  | { kind: 'standard' };

/** As scp reads it: what has a ":" before any "/" is in an environment. Relative paths there are below /workspace. */
export function parseLocation(text: string): Location {
  if (text === '-') return { kind: 'standard' };
  const match = /^([^/:]+):([\s\S]*)$/.exec(text);
  const [, id, path] = match ?? [];
  if (id === undefined || path === undefined) {
    if (text === '') throw usageError('a path must not be empty');
    return { kind: 'local', path: text };
  }
  return { kind: 'guest', id, path: guestPath(path) };
}

/** Absolute; a relative one is below /workspace, none is /workspace itself. A trailing "/" and "/." stay, they mean something. */
export function guestPath(path: string): string {
  if (path.startsWith('/')) return path;
  return path === '' ? '/workspace' : `/workspace/${path}`;
}

/** `ID:PATH`, or ID and PATH as two operands; without a path, /workspace. */
export function guestOperands(operands: readonly string[]): { id: string; path: string } {
  const [first = '', second, ...more] = operands;
  if (more.length > 0) throw usageError(`too many operands: ${more.join(' ')}`);
  const location = parseLocation(first);
  if (location.kind === 'guest') {
    if (second !== undefined) throw usageError(`${first} names the path already`, { hint: `Leave ${second} out.` });
    return location;
  }
  return { id: first, path: guestPath(second ?? '') };
}
