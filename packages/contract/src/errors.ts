/**
 * The closed set of error codes of the public API and their HTTP statuses.
 * One class carries an error from where it happens, over the wire, to the SDK's caller.
 */
import { z } from 'zod';

export const errorStatus = {
  invalid_argument: 400,
  unauthorized: 401,
  forbidden: 403,
  not_found: 404,
  route_not_found: 404,
  conflict: 409,
  payload_too_large: 413,
  quota_exceeded: 429,
  internal: 500,
  unimplemented: 501,
  /** The VM that should have answered died; whatever ran in it has no known end. */
  vm_lost: 502,
  unavailable: 503,
  deadline_exceeded: 504,
  /** Stored bytes do not match their digest; they are never handed out. */
  integrity_error: 500,
} as const;

export type ErrorCode = keyof typeof errorStatus;
export const errorCodes = Object.keys(errorStatus) as [ErrorCode, ...ErrorCode[]];

export interface AppErrorOptions {
  /** Names the offending field (`field`) and whatever else helps a program act. */
  details?: Record<string, string>;
  /** One sentence: what to do next. */
  hint?: string;
  cause?: unknown;
  /** Overrides the code's own status where api.md asks for it (403 with `unauthorized`, 502 with `unauthorized`). */
  status?: number;
  /** Seconds after which a retry makes sense; becomes `Retry-After`. */
  retryAfterSeconds?: number;
}

export class AppError extends Error {
  override readonly name = 'AppError';
  readonly code: ErrorCode;
  readonly details: Record<string, string> | undefined;
  readonly hint: string | undefined;
  readonly status: number;
  readonly retryAfterSeconds: number | undefined;

  constructor(code: ErrorCode, message: string, options: AppErrorOptions = {}) {
    super(message, { cause: options.cause });
    this.code = code;
    this.details = options.details;
    this.hint = options.hint;
    this.status = options.status ?? errorStatus[code];
    this.retryAfterSeconds = options.retryAfterSeconds;
  }
}

/** The client's mistake in one field: 400 `invalid_argument` with `details.field`. */
export function invalidField(field: string, problem: string, hint?: string): AppError {
  return new AppError('invalid_argument', `${field}: ${problem}`, {
    details: { field },
    ...(hint === undefined ? {} : { hint }),
  });
}

export const ErrorEnvelope = z.object({
  error: z.object({
    code: z.enum(errorCodes),
    message: z.string(),
    details: z.record(z.string(), z.string()).optional(),
    hint: z.string().optional(),
  }),
});
export type ErrorEnvelope = z.infer<typeof ErrorEnvelope>;

export function toEnvelope(error: AppError): ErrorEnvelope {
  return {
    error: {
      code: error.code,
      message: error.message,
      ...(error.details === undefined ? {} : { details: error.details }),
      ...(error.hint === undefined ? {} : { hint: error.hint }),
    },
  };
}
