/** How things look to people. */

/** Control characters and the like made visible: names come from guests, and terminals obey what is written to them. */
export function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu, (char) => {
    if (char === '\n') return '\\n';
    return `\\u{${char.codePointAt(0)?.toString(16)}}`;
  });
}

export function formatBytes(bytes: number): string {
  if (bytes < 1_024) return `${bytes} B`;
  const units = ['KiB', 'MiB', 'GiB', 'TiB'];
  let value = bytes / 1_024;
  let unit = 0;
  while (value >= 1_023.95 && unit < units.length - 1) {
    value /= 1_024;
    unit++;
  }
  return `${value.toFixed(1)} ${units[unit]}`;
}

export function formatMs(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 59_950) return `${(ms / 1_000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1_000);
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3_600)} h ${Math.floor((seconds % 3_600) / 60)} min`;
}

/** How long ago, in one unit. A clock that is behind the server's makes it "now", never negative. */
export function formatAge(ms: number): string {
  const seconds = Math.floor(ms / 1_000);
  if (seconds < 1) return 'now';
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7_200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3_600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

/** Columns under upper-case headings, two spaces apart; the last one is not padded. */
export function table(headings: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [headings, ...rows.map((row) => row.map(printable))];
  const widths = headings.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)));
  return lines
    .map((line) =>
      line
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .map((line) => `${line}\n`)
    .join('');
}

/** `name  value` lines; those without a value are left out. */
export function properties(values: Readonly<Record<string, string | undefined>>): string {
  const known = Object.entries(values).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, value] as const],
  );
  const width = Math.max(0, ...known.map(([name]) => name.length));
  return known.map(([name, value]) => `${name.padEnd(width)}  ${printable(value)}\n`).join('');
}

/** What a terminal could obey is escaped, which JSON allows for every character of a string. */
export const json = (value: unknown): string => harmless(JSON.stringify(value, null, 2));
/** The same on one line. */
export const jsonLine = (value: unknown): string => harmless(JSON.stringify(value));

const harmless = (text: string): string => `${text.replace(/[\u007f-\u009f\p{Cf}\p{Zl}\p{Zp}]/gu, escaped)}\n`;

const escaped = (char: string): string =>
  Array.from({ length: char.length }, (_, at) => `\\u${char.charCodeAt(at).toString(16).padStart(4, '0')}`).join('');
