/**
 * What a call can fail with:
 * - `FuseApiError`: the server answered, and the answer is an error;
 * - `FuseConnectionError`: no (whole) answer came; `FuseTimeoutError` is the one made by the client's own `timeoutMs`;
 * - `CutStreamError`: an event stream or log ended before its last event and could not be taken up again;
 * - `FuseExecLostError`: the VM of a command was lost, its end is unknown; `FuseLogGapError`: part of what it wrote is not kept any more;
 * - `IntegrityError`: downloaded bytes are not the ones that the server vouched for;
 * - `FuseError`: everything else (a wrong argument, an answer that is not the API's).
 * An aborted call rejects with its signal's own reason.
 */
import { type ErrorCode, ErrorEnvelope } from '@fuse/contract';
import { z } from 'zod';

export type { ErrorCode } from '@fuse/contract';

export class FuseError extends Error {
  override readonly name: string = 'FuseError';
}

export class FuseConnectionError extends FuseError {
  override readonly name: string = 'FuseConnectionError';
  /** False when the request surely never left this machine (connection refused, name not found). */
  readonly sent: boolean;

  constructor(message: string, options: { cause?: unknown; sent: boolean }) {
    super(message, { cause: options.cause });
    this.sent = options.sent;
  }
}

export class FuseTimeoutError extends FuseConnectionError {
  override readonly name = 'FuseTimeoutError';
}

export class CutStreamError extends FuseError {
  override readonly name = 'CutStreamError';
  /** Of the run or environment whose events these are, or of the exec whose log it is. */
  readonly subjectId: string;
  /** Give it to `events()` to go on where this stream was cut; of an exec it is the `offset` of its log. */
  readonly lastEventId: string | undefined;

  constructor(subjectId: string, lastEventId: string | undefined, cause: unknown) {
    super(`the stream of ${subjectId} was cut and could not be taken up again; how it went on is unknown`, {
      cause,
    });
    this.subjectId = subjectId;
    this.lastEventId = lastEventId;
  }
}

export class IntegrityError extends FuseError {
  override readonly name = 'IntegrityError';
}

/** Its VM died, was destroyed, or was restored to a moment before. It is never run again by itself. */
export class FuseExecLostError extends FuseError {
  override readonly name = 'FuseExecLostError';
  readonly execId: string;
  /** The server's own sentence. */
  readonly reason: string;

  constructor(execId: string, reason: string) {
    super(`exec ${execId} is lost, its end is unknown: ${reason}`);
    this.execId = execId;
    this.reason = reason;
  }
}

/** Bytes `from` to `to` of the log are not kept any more: more was written than `max_log_bytes` while nobody read it. */
export class FuseLogGapError extends FuseError {
  override readonly name = 'FuseLogGapError';
  readonly execId: string;
  readonly from: number;
  readonly to: number;

  constructor(execId: string, gap: { from: number; to: number }) {
    super(`bytes ${gap.from} to ${gap.to} of the log of exec ${execId} are not kept any more`);
    this.execId = execId;
    this.from = gap.from;
    this.to = gap.to;
  }
}

export interface ApiErrorFields {
  status: number;
  /** One of `ErrorCode`; a newer server may send others; empty when the answer was not the API's envelope. */
  code: ErrorCode | (string & {});
  /** The server's own sentence; `message` wraps it for logs. */
  reason: string;
  details?: Record<string, string> | undefined;
  hint?: string | undefined;
  requestId?: string | undefined;
  retryAfterMs?: number | undefined;
  /** The answer's text, for when it was not the envelope. */
  body?: string | undefined;
}

export class FuseApiError extends FuseError implements ApiErrorFields {
  override readonly name = 'FuseApiError';
  readonly status: number;
  readonly code: ErrorCode | (string & {});
  readonly reason: string;
  readonly details: Record<string, string> | undefined;
  readonly hint: string | undefined;
  readonly requestId: string | undefined;
  readonly retryAfterMs: number | undefined;
  readonly body: string | undefined;

  constructor(fields: ApiErrorFields) {
    const parts = [`status=${fields.status}`, ...(fields.code === '' ? [] : [`code=${fields.code}`]), fields.reason];
    if (fields.requestId !== undefined) parts.push(`request_id=${fields.requestId}`);
    super(`fuse api error: ${parts.join(', ')}`);
    this.status = fields.status;
    this.code = fields.code;
    this.reason = fields.reason;
    this.details = fields.details;
    this.hint = fields.hint;
    this.requestId = fields.requestId;
    this.retryAfterMs = fields.retryAfterMs;
    this.body = fields.body;
  }
}

/** The envelope as clients must take it: any code, and a code or a message is enough. */
const LooseEnvelope = z.object({
  error: z
    .object({ ...ErrorEnvelope.shape.error.shape, code: z.string().default(''), message: z.string().default('') })
    .refine((error) => error.code !== '' || error.message !== ''),
});

export function apiErrorFrom(response: Response, body: string, nowMs: number): FuseApiError {
  const common = {
    status: response.status,
    requestId: response.headers.get('x-request-id') ?? undefined,
    retryAfterMs: retryAfterMs(response.headers.get('retry-after'), nowMs),
    body,
  };
  const parsed = LooseEnvelope.safeParse(jsonOrUndefined(body));
  if (!parsed.success) return new FuseApiError({ ...common, code: '', reason: `HTTP status ${response.status}` });
  const { code, message, details, hint } = parsed.data.error;
  return new FuseApiError({ ...common, code, reason: message === '' ? code : message, details, hint });
}

function jsonOrUndefined(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** RFC 9110: seconds, or an HTTP date. */
function retryAfterMs(header: string | null, nowMs: number): number | undefined {
  if (header === null) return undefined;
  if (/^\d+$/.test(header)) return Number(header) * 1000;
  const at = Date.parse(header);
  return Number.isNaN(at) ? undefined : Math.max(0, at - nowMs);
}

const hasCode = (code: ErrorCode) => (error: unknown) => error instanceof FuseApiError && error.code === code;

/** By code, never by status: 403 with `unauthorized` is unauthorized, an unknown route is not "not found". */
export const isNotFound = hasCode('not_found');
export const isConflict = hasCode('conflict');
export const isInvalidArgument = hasCode('invalid_argument');
export const isUnauthorized = hasCode('unauthorized');
export const isForbidden = hasCode('forbidden');
export const isQuotaExceeded = hasCode('quota_exceeded');
export const isUnavailable = hasCode('unavailable');
export const isInternal = hasCode('internal');
/** The VM died under the call: whether the command ran to its end is unknown. */
export const isVmLost = (error: unknown): boolean => error instanceof FuseExecLostError || hasCode('vm_lost')(error);
