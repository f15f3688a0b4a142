/** Text that came from a guest, made such that PostgreSQL can hold it: no NUL, no lone surrogates, bounded. */
const UNSTORABLE = /\0|\p{Surrogate}/gu; // with `u`, only half a pair is a surrogate

export function storableText(text: string, maxLength = 4_096): string {
  const bounded = text.length > maxLength ? `${text.slice(0, maxLength - 1)}…` : text;
  return bounded.replace(UNSTORABLE, '\uFFFD');
}

export const isStorable = (text: string): boolean => text.search(UNSTORABLE) === -1;
