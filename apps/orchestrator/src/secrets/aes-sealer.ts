/**
 * AES-256-GCM. A sealed text is `fuse1:KEY_ID:` and the base64url of nonce (12 bytes, random), ciphertext and tag (16 bytes); the context is additional data. Without a key
 * it is `clear:` and the text itself, which stays readable when there is a key.
 */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import type { Sealer } from './sealer.ts';
import { type SealingKeys, sealingKeyId } from './sealing-keys.ts';

const ALGORITHM = 'aes-256-gcm';
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const CLEAR = 'clear:';
const SEALED = /^fuse1:([0-9a-f]{16}):([A-Za-z0-9_-]+)$/;

export const isSealedText = (text: string): boolean => text.startsWith(CLEAR) || SEALED.test(text);

export class SealingError extends Error {
  override readonly name = 'SealingError';
}

export function createSealer({ current, old }: SealingKeys): Sealer {
  const keys = new Map([old, current].flatMap((key) => (key === undefined ? [] : [[sealingKeyId(key), key]])));
  const prefix = current === undefined ? CLEAR : `fuse1:${sealingKeyId(current)}:`;
  return {
    prefix,
    seal: (plain, context) => prefix + (current === undefined ? plain : encrypt(current, plain, context)),
    open(sealed, context) {
      if (sealed.startsWith(CLEAR)) return sealed.slice(CLEAR.length);
      const [, id = '', body = ''] = SEALED.exec(sealed) ?? [];
      if (id === '') throw new SealingError(`${context} is no sealed text`);
      const key = keys.get(id);
      if (key === undefined)
        throw new SealingError(`${context} is sealed with the key ${id}, which is neither the current nor the old one`);
      return decrypt(key, Buffer.from(body, 'base64url'), context);
    },
  };
}

function encrypt(key: Uint8Array, plain: string, context: string): string {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(ALGORITHM, key, nonce, { authTagLength: TAG_BYTES }).setAAD(Buffer.from(context));
  const body = Buffer.concat([nonce, cipher.update(plain, 'utf8'), cipher.final()]);
  return Buffer.concat([body, cipher.getAuthTag()]).toString('base64url');
}

function decrypt(key: Uint8Array, body: Buffer, context: string): string {
  try {
    const nonce = body.subarray(0, NONCE_BYTES);
    const decipher = createDecipheriv(ALGORITHM, key, nonce, { authTagLength: TAG_BYTES });
    decipher.setAAD(Buffer.from(context)).setAuthTag(body.subarray(-TAG_BYTES));
    const plain = [decipher.update(body.subarray(NONCE_BYTES, -TAG_BYTES)), decipher.final()];
    return Buffer.concat(plain).toString('utf8');
  } catch (cause) {
    throw new SealingError(`${context} cannot be opened: it was changed, or is of another place`, { cause });
  }
}
