/** What went wrong with the S3 server, in the operator's words. Never shows keys, signatures or what was signed. */
import { AppError } from '@fuse/contract';

export type S3Fault =
  | 'access_key'
  | 'secret_key'
  | 'permission'
  | 'bucket'
  | 'region'
  | 'connection'
  | 'tls'
  | 'clock'
  | 'not_s3'
  | 'server';

const FAULT_OF_CODE: Record<string, S3Fault> = {
  InvalidAccessKeyId: 'access_key',
  XAdminUserNotFound: 'access_key', // versitygw's word for it
  InvalidToken: 'access_key',
  SignatureDoesNotMatch: 'secret_key',
  AccessDenied: 'permission',
  AllAccessDisabled: 'permission',
  AccountProblem: 'permission',
  NoSuchBucket: 'bucket',
  InvalidBucketName: 'bucket',
  PermanentRedirect: 'region',
  TemporaryRedirect: 'region',
  AuthorizationHeaderMalformed: 'region',
  IllegalLocationConstraintException: 'region',
  RequestTimeTooSkewed: 'clock',
  ECONNREFUSED: 'connection',
  ECONNRESET: 'connection',
  EHOSTUNREACH: 'connection',
  ENETUNREACH: 'connection',
  ENOTFOUND: 'connection',
  EAI_AGAIN: 'connection',
  EPIPE: 'connection',
  ETIMEDOUT: 'connection',
  TimeoutError: 'connection',
  EPROTO: 'tls',
  CERT_HAS_EXPIRED: 'tls',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'tls',
  SELF_SIGNED_CERT_IN_CHAIN: 'tls',
  UNABLE_TO_GET_ISSUER_CERT: 'tls',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: 'tls',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'tls',
};

const MESSAGE: Record<S3Fault, string> = {
  access_key: 'the S3 server does not know the access key',
  secret_key: 'the S3 server refuses the signature: the secret key does not belong to the access key',
  permission: 'the S3 server denies this access key what was asked',
  bucket: 'the S3 bucket does not exist',
  region: 'the S3 bucket is in another region',
  connection: 'the S3 server cannot be reached',
  tls: 'no secure connection to the S3 server',
  clock: "this machine's clock and the S3 server's are too far apart",
  not_s3: 'what answers there is no S3 server',
  server: 'the S3 server failed',
};

export const s3Fault = (fault: S3Fault, cause?: unknown): AppError =>
  new AppError('unavailable', MESSAGE[fault], { details: { reason: fault }, cause });

/** For clients: what is at fault, without names of ours. AppErrors, aborts and errors of a source stream pass. */
export function s3Error(cause: unknown): unknown {
  if (hasS3Code(cause, ...NAME_CONFLICTS))
    return new AppError('conflict', 'the key is a folder of other keys, or lies below another key', {
      cause: withoutSecrets(cause),
    });
  const fault = faultOf(cause);
  if (fault === undefined) return cause;
  return s3Fault(fault, withoutSecrets(cause));
}

/** versitygw's words, whose objects are files. */
export const NAME_CONFLICTS = ['ExistingObjectIsDirectory', 'ObjectParentIsFile'];

/** Requests of the store go through here; a failing source stream must keep its own error. */
export async function onS3<T>(request: Promise<T>): Promise<T> {
  try {
    return await request;
  } catch (error) {
    throw s3Error(error);
  }
}

/** Undefined for what neither the SDK nor its connection threw. */
export function faultOf(error: unknown): S3Fault | undefined {
  if (!(error instanceof Error) || error instanceof AppError) return undefined;
  for (const word of words(error)) {
    const fault = FAULT_OF_CODE[word];
    if (fault !== undefined) return fault;
    if (word.startsWith('ERR_TLS') || word.startsWith('ERR_SSL') || word.startsWith('CERT_')) return 'tls';
    if (word.startsWith('HPE_')) return 'not_s3';
  }
  const status = statusOf(error);
  if (status === undefined) return undefined;
  if (!isFromS3(error)) return 'not_s3';
  if (status === 301 || status === 307) return 'region';
  return status === 403 ? 'permission' : 'server';
}

export const isNoSuchKey = (error: unknown): boolean =>
  error instanceof Error && words(error).some((word) => word === 'NoSuchKey' || word === 'NotFound');

export const hasS3Code = (error: unknown, ...codes: string[]): error is Error =>
  error instanceof Error && words(error).some((word) => codes.includes(word));

export function statusOf(error: unknown): number | undefined {
  const metadata = property(error, '$metadata');
  const status = property(metadata, 'httpStatusCode');
  return typeof status === 'number' ? status : undefined;
}

/** An S3 server's error has a code and a request id of its own; a web server's page has neither. */
const isFromS3 = (error: Error): boolean =>
  (statusOf(error) ?? 0) >= 500 ||
  typeof property(error, 'Code') === 'string' ||
  property(property(error, '$metadata'), 'requestId') !== undefined;

function words(error: Error): string[] {
  const inner = property(error, 'cause');
  return [property(error, 'name'), property(error, 'Code'), property(error, 'code'), property(inner, 'code')].filter(
    (word) => typeof word === 'string',
  );
}

/** The SDK puts the server's whole answer on its error, what was signed with it: logs get the name, the message and the ids. */
function withoutSecrets(error: unknown): Error {
  const [name, message] = [property(error, 'name'), property(error, 'message')];
  const requestId = property(property(error, '$metadata'), 'requestId');
  return new Error(`${name}: ${message} (HTTP ${statusOf(error) ?? '-'}, request ${requestId ?? '-'})`);
}

function property(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null && name in value
    ? (value as Record<string, unknown>)[name]
    : undefined; // `in` proved it
}
