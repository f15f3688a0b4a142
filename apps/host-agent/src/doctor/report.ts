import type { NamedFinding, Verdict } from './finding.ts';

const marks: Record<Verdict, string> = { ok: '✓', warn: '!', fail: '✗' };

/** A line for each finding, its fix below it. */
export function reportText(findings: readonly NamedFinding[]): string {
  const width = Math.max(...findings.map(({ check }) => check.length));
  const lines = findings.flatMap(({ check, verdict, message, fix }) => {
    const line = `${marks[verdict]} ${verdict.padEnd(4)}  ${check.padEnd(width)}  ${message}`;
    return fix === undefined || verdict === 'ok' ? [line] : [line, `${' '.repeat(width + 10)}fix: ${fix}`];
  });
  const count = (wanted: Verdict) => findings.filter(({ verdict }) => verdict === wanted).length;
  return `${lines.join('\n')}\n\n${count('ok')} ok, ${count('warn')} warnings, ${count('fail')} failures\n`;
}

export const anyFailed = (findings: readonly NamedFinding[]): boolean =>
  findings.some(({ verdict }) => verdict === 'fail');
