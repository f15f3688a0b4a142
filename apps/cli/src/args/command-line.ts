/** Which of its two forms `fuse run` was given: `run FILE [args…]` or `run -- COMMAND [args…]`. */
export type RunTarget = { kind: 'file'; path: string; args: string[] } | { kind: 'command'; argv: string[] };

/**
 * `operands` are what the parser left over, `rawArgs` the whole command line. It is a command when the first "--" stands right before
 * the operands; one behind FILE is FILE's own.
 */
export function runTarget(rawArgs: readonly string[], operands: readonly string[]): RunTarget | undefined {
  const [first, ...rest] = operands;
  if (first === undefined) return undefined;
  const separator = rawArgs.indexOf('--');
  if (separator >= 0 && rawArgs.length - separator - 1 === operands.length)
    return { kind: 'command', argv: [...operands] };
  return { kind: 'file', path: first, args: rest };
}
