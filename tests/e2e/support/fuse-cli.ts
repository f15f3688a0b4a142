/** The real command line as a child process, byte for byte. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

const program = fileURLToPath(new URL('../../../apps/cli/bin/fuse.js', import.meta.url));

export interface Outcome {
  code: number | null;
  stdout: Buffer;
  stderr: string;
}

export interface Started {
  child: ChildProcess;
  /** Resolves when stdout or stderr holds the text; rejects when the process ends first. */
  says(text: string): Promise<void>;
  /** So far, on both. */
  said(): string;
  outcome: Promise<Outcome>;
}

export interface FuseOptions {
  env: Record<string, string>;
  cwd?: string;
  stdin?: Uint8Array | string;
  /** Nothing comes, and no end. */
  keepStdinOpen?: boolean;
  /** A descriptor in place of the pipe. */
  stdout?: number;
}

/** In a process group of its own, so that a signal to it is nobody else's. */
export function startFuse(
  args: readonly string[],
  { env, cwd, stdin, keepStdinOpen, stdout: stdoutFd }: FuseOptions,
): Started {
  const child = spawn(process.execPath, [program, ...args], {
    env: { PATH: process.env.PATH, HOME: process.env.HOME, ...env },
    cwd,
    detached: true,
    stdio: ['pipe', stdoutFd ?? 'pipe', 'pipe'],
  });
  child.stdin?.on('error', () => {}); // it may end without reading
  if (keepStdinOpen === true) child.stdin?.write(stdin ?? '');
  else child.stdin?.end(stdin ?? '');
  const stdout: Buffer[] = [];
  const stderr: Buffer[] = [];
  child.stdout?.on('data', (chunk: Buffer) => stdout.push(chunk));
  child.stderr?.on('data', (chunk: Buffer) => stderr.push(chunk));
  const text = () => Buffer.concat([...stdout, ...stderr]).toString();
  const outcome = once(child, 'close').then(() => ({
    code: child.exitCode,
    stdout: Buffer.concat(stdout),
    stderr: Buffer.concat(stderr).toString(),
  }));
  const says = (wanted: string) =>
    new Promise<void>((resolve, reject) => {
      const look = () => {
        if (text().includes(wanted)) resolve();
      };
      child.stdout?.on('data', look);
      child.stderr?.on('data', look);
      look();
      void outcome.then(() => reject(new Error(`it ended without saying ${JSON.stringify(wanted)}:\n${text()}`)));
    });
  return { child, says, said: text, outcome };
}

export const fuse = (args: readonly string[], options: FuseOptions): Promise<Outcome> =>
  startFuse(args, options).outcome;
