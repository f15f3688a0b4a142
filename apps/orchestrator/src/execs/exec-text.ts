/** A command's bytes as text. */
export interface DecodedText {
  text: string;
  /** Some bytes were not UTF-8 and became U+FFFD. */
  lossy: boolean;
}

/** `cut`: the bytes are the head of more, so a character may stand half at the end; that half is left out. */
export function decodeUtf8(bytes: Uint8Array, cut: boolean): DecodedText {
  const whole = cut ? bytes.subarray(0, bytes.length - halfCharacterAtEnd(bytes)) : bytes;
  try {
    return { text: new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(whole), lossy: false };
  } catch {
    return { text: new TextDecoder('utf-8', { ignoreBOM: true }).decode(whole), lossy: true };
  }
}

/** How many bytes at the end begin a character that is not finished. */
export function halfCharacterAtEnd(bytes: Uint8Array): number {
  for (let back = 1; back <= Math.min(3, bytes.length); back += 1) {
    const byte = bytes[bytes.length - back] ?? 0;
    if ((byte & 0b1100_0000) === 0b1000_0000) continue; // a continuation: look further back
    return characterLength(byte) > back ? back : 0;
  }
  return 0;
}

/** Of the character that this byte begins. */
export const characterLength = (byte: number): number =>
  byte >= 0b1111_0000 ? 4 : byte >= 0b1110_0000 ? 3 : byte >= 0b1100_0000 ? 2 : 1;
