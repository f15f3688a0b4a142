/**
 * The background service's log. Everything that it says, a crash of Node itself included, is appended to one file through one descriptor, so
 * the file is bounded in place: its content moves to `local.log.1` and it starts again from nothing.
 */
import { copyFile, open, readFile, stat, truncate } from 'node:fs/promises';

const MAX_LOG_BYTES = 16 * 1024 * 1024;
const CHECK_MS = 15_000;

export async function boundLog(path: string, maxBytes = MAX_LOG_BYTES): Promise<void> {
  const info = await stat(path).catch(() => undefined);
  if (info === undefined || info.size <= maxBytes) return;
  await copyFile(path, `${path}.1`);
  await truncate(path, 0);
}

/** Until `signal` aborts. */
export function keepLogBounded(path: string, onError: (error: unknown) => void): Disposable {
  const timer = setInterval(() => boundLog(path).catch(onError), CHECK_MS);
  timer.unref();
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

/** Bytes of the log so far: what a start appends comes after them. */
export const logSize = async (path: string): Promise<number> => (await stat(path).catch(() => undefined))?.size ?? 0;

export interface LoggedReason {
  message: string;
  hint?: string | undefined;
}

/** Why a start failed, as far as its log tells: the last error, else its last lines. */
export async function reasonInLog(path: string, fromByte: number): Promise<LoggedReason> {
  const text = (await readFile(path).catch(() => Buffer.alloc(0))).subarray(fromByte).toString('utf8');
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  const errors = lines.map(errorIn).filter((each) => each !== undefined);
  return errors.at(-1) ?? { message: lines.slice(-8).join('\n') || 'it said nothing' };
}

const PINO_ERROR_LEVEL = 50;

function errorIn(line: string): LoggedReason | undefined {
  try {
    const { level, msg, err } = JSON.parse(line);
    if (typeof level !== 'number' || level < PINO_ERROR_LEVEL) return undefined;
    return { message: [msg, err?.message].filter(Boolean).join(': '), hint: err?.hint };
  } catch {
    return undefined;
  }
}

const FOLLOW_MS = 250;

/** The last `lines` lines to `write`; with `signal`, what is appended as well, until it aborts. */
export async function printLog(
  path: string,
  { lines, follow }: { lines: number; follow: AbortSignal | undefined },
  write: (bytes: Uint8Array) => void,
): Promise<void> {
  await using file = await open(path, 'r');
  const content = await file.readFile();
  write(content.subarray(startOfLastLines(content, lines)));
  let at = content.length;
  while (follow !== undefined && !follow.aborted) {
    await new Promise((resolve) => setTimeout(resolve, FOLLOW_MS));
    const { size } = await file.stat();
    if (size < at) at = 0; // it was started again
    const more = Buffer.alloc(size - at);
    const { bytesRead } = await file.read(more, 0, more.length, at);
    at += bytesRead;
    write(more.subarray(0, bytesRead));
  }
}

function startOfLastLines(content: Uint8Array, lines: number): number {
  let at = content.length - 1;
  for (let left = lines; at > 0; at--) {
    if (content[at - 1] === 0x0a && --left === 0) return at;
  }
  return 0;
}
