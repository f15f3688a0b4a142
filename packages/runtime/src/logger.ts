/** One logger shape for every process: JSON lines on the given stream, secrets redacted by path. */
import { type DestinationStream, type Logger, pino } from 'pino';

export type { Logger } from 'pino';

/** Fields of whatever is logged, and of what it holds. */
const redactedFields = [
  'authorization',
  'cookie',
  'entropy_base64',
  'env',
  'files',
  'gateway_token',
  'key',
  'manifest',
  'manifest_inline',
  'password',
  'script',
  'secret',
  'secretAccessKey',
  'secrets',
  'startup',
  'startup_script',
  'stdin',
  'stdin_base64',
  'ticket',
  'token',
];

const redactedPaths = [
  ...redactedFields.flatMap((field) => [field, `*.${field}`]),
  ...['authorization', 'cookie', '["set-cookie"]'].flatMap((header) => {
    const of = header.startsWith('[') ? header : `.${header}`;
    return [`headers${of}`, `req.headers${of}`, `res.headers${of}`];
  }),
];

export interface LoggerOptions {
  name: string;
  level?: string;
  destination?: DestinationStream;
}

export function createLogger({ name, level = 'info', destination }: LoggerOptions): Logger {
  const options = {
    name,
    level,
    redact: { paths: redactedPaths, censor: '[redacted]' },
    base: { name, pid: process.pid },
  };
  return destination === undefined ? pino(options) : pino(options, destination);
}
