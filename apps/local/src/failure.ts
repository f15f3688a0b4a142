/** What ends a command: a sentence, and what to do next. */
export class Failure extends Error {
  override readonly name = 'Failure';
  readonly hint: string | undefined;

  constructor(message: string, hint?: string, cause?: unknown) {
    super(message, { cause });
    this.hint = hint;
  }
}

/** Talk for people; data goes to stdout. */
export const say = (line: string): void => void process.stderr.write(`${line}\n`);
