/** Of errors of this machine's system, which Node words for programmers: `ENOENT: no such file or directory, open 'x'` is `x: no such file or directory`. */
export function systemErrorText(error: unknown): string | undefined {
  if (!(error instanceof Error) || !('syscall' in error) || !('code' in error)) return undefined;
  const [, problem] = /^listen [A-Z0-9]+: (.+?)(?: \S*[.:]\S*)?$/s.exec(error.message) ?? [];
  if (problem !== undefined) return problem;
  const [, sentence] = /^[A-Z0-9]+: (.+?), \w+(?: '|$)/s.exec(error.message) ?? [];
  if (sentence === undefined) return error.message;
  return 'path' in error && typeof error.path === 'string' ? `${error.path}: ${sentence}` : sentence;
}
