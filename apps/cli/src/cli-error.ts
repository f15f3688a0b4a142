/** What ends a command: a sentence, what to do next, and the exit code. */
export class CliError extends Error {
  override readonly name = 'CliError';
  readonly hint: string | undefined;
  readonly exitCode: number;

  constructor(message: string, options: { hint?: string; exitCode?: number; cause?: unknown } = {}) {
    super(message, { cause: options.cause });
    this.hint = options.hint;
    this.exitCode = options.exitCode ?? 1;
  }
}

/** What was typed makes no sense. */
export const usageError = (message: string, options: { hint?: string; cause?: unknown } = {}): CliError =>
  new CliError(`invalid argument: ${message}`, options);
