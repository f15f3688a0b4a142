import { invalidField } from '@fuse/contract';

export const DEFAULT_CONTENT_TYPE = 'application/octet-stream';
export const MAX_CONTENT_TYPE_BYTES = 255;

export function checkContentType(contentType: string): void {
  if (contentType === '' || Buffer.byteLength(contentType) > MAX_CONTENT_TYPE_BYTES)
    throw invalidField('contentType', `must be 1 to ${MAX_CONTENT_TYPE_BYTES} bytes long`);
  // \p{Cc}: control characters, a line break among them; \p{Cs}: half a surrogate pair, which UTF-8 cannot carry.
  if (/[\p{Cc}\p{Cs}]/u.test(contentType)) throw invalidField('contentType', 'must not hold control characters');
}

/** What an HTTP header may carry: itself, or the default for a type with characters beyond ASCII. */
export const asciiContentType = (contentType: string): string =>
  /^[\x20-\x7e]+$/.test(contentType) ? contentType : DEFAULT_CONTENT_TYPE;
