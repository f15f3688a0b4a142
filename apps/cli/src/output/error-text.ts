/** Any failure as people read it: a sentence, then `hint: …`. */
import { CutStreamError, FuseApiError, FuseConnectionError, FuseError } from '@fuse/sdk';
import { InvalidArgumentError } from 'commander';
import { CliError } from '../cli-error.ts';
import { apiHint } from './api-hint.ts';
import { printable } from './format.ts';
import { systemErrorText } from './system-error-text.ts';

const prefixes: Record<string, string> = {
  not_found: 'not found',
  conflict: 'conflict',
  unauthorized: 'unauthorized',
  forbidden: 'forbidden',
  invalid_argument: 'invalid argument',
  unavailable: 'unavailable',
  quota_exceeded: 'quota exceeded',
};

export function errorText(error: unknown): string {
  const { message, hint } = explain(error);
  return `${printable(message)}\n${hint === undefined ? '' : `hint: ${printable(hint)}\n`}`;
}

/** One sentence, for where another one goes on. Not yet printable. */
export const reasonOf = (error: unknown): string => explain(error).message;

function explain(error: unknown): { message: string; hint?: string | undefined } {
  if (error instanceof CliError) return error;
  if (error instanceof InvalidArgumentError) return { message: `invalid argument: ${error.message}` };
  if (error instanceof FuseApiError) return explainApiError(error);
  if (error instanceof CutStreamError) return { message: error.message, hint: cutHint(error) };
  if (error instanceof FuseConnectionError && !error.sent)
    return {
      message: error.message,
      hint: 'is it up? `fuse local up` starts a local stack, `fuse context current` shows who is asked',
    };
  if (error instanceof FuseError) return { message: error.message };
  const systemError = systemErrorText(error);
  if (systemError !== undefined) return { message: systemError };
  // Whatever else it is, it is this program's fault; the trace says where.
  return { message: error instanceof Error ? (error.stack ?? error.message) : String(error) };
}

/** Some streams are of no single thing: "all environments". */
const cutHint = ({ subjectId }: CutStreamError): string | undefined =>
  subjectId.includes(' ') ? undefined : `it may still be going on: fuse runs get ${subjectId}`;

function explainApiError(error: FuseApiError): { message: string; hint?: string | undefined } {
  const prefix = error.status === 403 ? 'forbidden' : prefixes[error.code];
  if (prefix !== undefined) return { message: `${prefix}: ${error.reason}`, hint: apiHint(error) };
  const id = error.requestId === undefined ? '' : ` (request id: ${error.requestId})`;
  const stranger = error.code === 'route_not_found' || error.code === '';
  return {
    message: `${error.reason}${id}`,
    hint:
      apiHint(error) ?? (stranger ? 'is this the orchestrator? `fuse context current` shows who is asked' : undefined),
  };
}
