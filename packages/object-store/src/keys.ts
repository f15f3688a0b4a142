import { invalidField } from '@fuse/contract';

/** S3 allows 1024 bytes; the rest is for the adapters' own prefixes and names. */
export const MAX_KEY_LENGTH = 800;
const MAX_PART_LENGTH = 200;
const PART = /^[A-Za-z0-9._-]+$/;

/** Throws `invalid_argument` for anything but clean parts: what passes is safe as a path below a directory and in a URL. */
export function checkKey(key: string, field = 'key'): void {
  if (key.length > MAX_KEY_LENGTH) throw invalidField(field, `is longer than ${MAX_KEY_LENGTH} characters`);
  for (const part of key.split('/')) {
    if (!PART.test(part) || part === '.' || part === '..' || part.length > MAX_PART_LENGTH)
      throw invalidField(
        field,
        'must be parts of 1 to 200 letters, digits, ".", "_" and "-", joined by "/", none of them "." or ".."',
      );
  }
}
