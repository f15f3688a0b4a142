/** `--input LOCAL[:GUEST]` taken apart; nothing is read here. */
import { basename } from 'node:path';
import { InvalidArgumentError } from 'commander';

export interface InputSpec {
  local: string;
  /** Absolute, or relative to the workspace. Of a directory: where its content goes. */
  guest: string;
}

/**
 * The last colon separates, unless what is before it does not exist and the whole does: a file name may hold colons.
 * A guest path that ends in "/" is the directory that LOCAL goes into. `--input .` fills the workspace itself.
 */
export function parseInputSpec(text: string, exists: (path: string) => boolean): InputSpec {
  const at = text.lastIndexOf(':');
  const split = at > 0 && at < text.length - 1 && !exists(text);
  const local = split ? text.slice(0, at) : text;
  const guest = split ? text.slice(at + 1) : '';
  if (local === '') throw new InvalidArgumentError('Write LOCAL or LOCAL:GUEST.');
  if (guest.split('/').includes('..')) throw new InvalidArgumentError('The path in the guest must not hold "..".');
  const name = basename(local);
  const named = name === '.' || name === '..' || name === '' ? '' : name;
  if (guest === '') return { local, guest: named };
  return { local, guest: guest.endsWith('/') ? `${guest}${named}` : guest };
}
