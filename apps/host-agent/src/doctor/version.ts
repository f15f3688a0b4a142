/** "7.2.18" is at least "7.2". Parts are compared as numbers; a missing one is 0. */
export function isAtLeast(version: string, needed: string): boolean {
  const have = version.split('.').map(Number);
  const want = needed.split('.').map(Number);
  for (let index = 0; index < Math.max(have.length, want.length); index++) {
    const difference = (have[index] ?? 0) - (want[index] ?? 0);
    if (difference !== 0) return difference > 0;
  }
  return true;
}
