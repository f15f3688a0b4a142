/** The keys that secrets are sealed with, as an operator gives them. */
import { createHash } from 'node:crypto';

export interface SealingKeys {
  /** Undefined: nothing is encrypted. */
  current: Uint8Array | undefined;
  /** The one before it, while there may be rows that were sealed with it. */
  old: Uint8Array | undefined;
}

/** 64 hex digits, or the base64 (either alphabet, padded or not) of 32 bytes. Undefined for anything else. */
export function parseSealingKey(text: string): Uint8Array | undefined {
  if (/^[0-9a-fA-F]{64}$/.test(text)) return Buffer.from(text, 'hex');
  if (!/^[A-Za-z0-9+/_-]{43}=?$/.test(text)) return undefined;
  return Buffer.from(text, 'base64');
}

/** Tells keys apart without telling anything of them. */
export const sealingKeyId = (key: Uint8Array): string =>
  createHash('sha256').update('fuse sealing key id\0').update(key).digest('hex').slice(0, 16);
