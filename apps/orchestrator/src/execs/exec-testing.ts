/** For tests: logs as clients read them. */
import { request } from 'node:http';
import type { ExecLogLine, Frame } from '@fuse/contract';
import { FrameParser } from '@fuse/contract';
import { TEST_TOKEN, type TestOrchestrator } from '../test-orchestrator.ts';

export interface StreamAnswer {
  status: number;
  headers: NodeJS.Dict<string | string[]>;
  bytes: Buffer;
  trailers: NodeJS.Dict<string>;
  /** It came to its end, as HTTP has one. */
  isWhole: boolean;
}

export interface StreamOptions {
  method?: string;
  body?: string;
  /** Told of what came so far; true leaves. */
  leaveWhen?: (bytes: Buffer) => boolean;
}

/** The whole answer, or what came of it until the server or we cut it. */
export function readStream(
  test: Pick<TestOrchestrator, 'orchestrator'>,
  path: string,
  { method = 'GET', body, leaveWhen = () => false }: StreamOptions = {},
): Promise<StreamAnswer> {
  return new Promise((resolve, reject) => {
    const headers = { authorization: `Bearer ${TEST_TOKEN}` };
    const call = request(`${test.orchestrator.url}${path}`, { method, headers }, (response) => {
      const chunks: Buffer[] = [];
      let left = false;
      response.on('data', (chunk: Buffer) => {
        chunks.push(chunk);
        if (left || !leaveWhen(Buffer.concat(chunks))) return;
        left = true;
        response.destroy();
      });
      response.on('error', () => {}); // 'close' follows
      response.once('close', () =>
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          bytes: Buffer.concat(chunks),
          trailers: response.trailers,
          isWhole: response.complete && !left,
        }),
      );
    });
    call.on('error', reject);
    call.end(body);
  });
}

/** Whole lines only: the last one of a cut answer may be half. */
export function linesOf(bytes: Buffer): ExecLogLine[] {
  const text = bytes.toString('utf8');
  return text
    .slice(0, text.lastIndexOf('\n') + 1)
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as ExecLogLine);
}

export const framesOf = (bytes: Buffer): Frame[] => [...new FrameParser().push(bytes)];

export const dataOf = (lines: readonly ExecLogLine[], stream: 'stdout' | 'stderr'): Buffer =>
  Buffer.concat(
    lines.map((line) =>
      'stream' in line && line.stream === stream
        ? Buffer.from(line.data, line.encoding === 'utf8' ? 'utf8' : 'base64')
        : Buffer.alloc(0),
    ),
  );
