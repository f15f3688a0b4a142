const CHUNK_BYTES = 32_768;

/** Arrays of any size: an argument list has its limit. */
export function base64FromBytes(bytes: Uint8Array): string {
  let binary = '';
  for (let at = 0; at < bytes.length; at += CHUNK_BYTES)
    binary += String.fromCharCode(...bytes.subarray(at, at + CHUNK_BYTES));
  return btoa(binary);
}
