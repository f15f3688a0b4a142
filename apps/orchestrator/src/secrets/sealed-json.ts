/** Values of jsonb columns that are secret: `{"sealed": text}`, so that nothing else needs to know. What was written before there was sealing is as it is. */
import { isSealedText } from './aes-sealer.ts';
import type { Sealer } from './sealer.ts';

declare const plain: unique symbol;
/** A T in the database. Made and read here alone. */
export interface SealedJson<T> {
  readonly [plain]: T;
}

/** What is empty is no secret: it stays as it is. */
export function sealJson<T extends object>(sealer: Sealer, value: T, context: string): SealedJson<T> {
  const kept = Object.keys(value).length === 0 ? value : { sealed: sealer.seal(JSON.stringify(value), context) };
  return kept as unknown as SealedJson<T>; // the brand exists for the compiler only
}

export function openJson<T>(sealer: Sealer, kept: SealedJson<T>, context: string): T {
  const text = sealedText(kept);
  return (text === undefined ? kept : JSON.parse(sealer.open(text, context))) as T; // what sealJson was given
}

/** Undefined: it is in clear. */
export function sealedText(kept: unknown): string | undefined {
  if (typeof kept !== 'object' || kept === null || !('sealed' in kept)) return undefined;
  const { sealed } = kept;
  return typeof sealed === 'string' && Object.keys(kept).length === 1 && isSealedText(sealed) ? sealed : undefined;
}
