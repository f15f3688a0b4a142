/** Keys of a run's objects, and the way back from a key to the moment its owner was made. */
export const runPrefix = (runId: string): string => `runs/${runId}`;
export const inputKey = (runId: string, index: number): string => `${runPrefix(runId)}/in/${index}`;
export const stdinKey = (runId: string): string => `${runPrefix(runId)}/in/stdin`;
/** Of one attempt at saving: two drivers, one of them late, never write the same keys. */
export const outputsPrefix = (runId: string, attempt: string): string => `${runPrefix(runId)}/out-${attempt}`;

/** The run or file that an object belongs to, with the time that its id carries (runtime's newId). */
export function ownerOf(key: string): { id: string; createdMs: number } | undefined {
  const match = /^(?:runs|files)\/((?:run|file)-([0-9a-z]{9})[0-9a-f]{20})(?:\/|$)/.exec(key);
  if (match?.[1] === undefined || match[2] === undefined) return undefined;
  return { id: match[1], createdMs: Number.parseInt(match[2], 36) };
}
