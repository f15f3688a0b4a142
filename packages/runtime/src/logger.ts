/** One logger shape for every process: JSON lines on the given stream, secrets redacted by path. */
import { type DestinationStream, type Logger, pino } from 'pino';

export type { Logger } from 'pino';

const redactedPaths = [
  'token',
  '*.token',
  'authorization',
  '*.authorization',
  'headers.authorization',
  'req.headers.authorization',
  'headers.cookie',
  'env',
  '*.env',
  'secrets',
  '*.secrets',
  'stdin',
  '*.stdin',
  'secretAccessKey',
  '*.secretAccessKey',
  'entropy_base64',
  '*.entropy_base64',
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
