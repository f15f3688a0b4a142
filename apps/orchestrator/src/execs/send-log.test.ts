import { request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { FrameParser, frameType, type LogStream } from '@fuse/contract';
import Fastify, { type FastifyInstance, type FastifyReply } from 'fastify';
import { afterEach, describe, expect, it } from 'vitest';
import type { LogEvent } from './follow-log.ts';
import { sendLog } from './send-log.ts';

let app: FastifyInstance | undefined;
afterEach(() => app?.close());

async function bytesOf(form: LogStream, events: () => AsyncGenerator<LogEvent>): Promise<Buffer> {
  app = Fastify();
  app.get('/', async (_request: unknown, reply: FastifyReply) => {
    const { signal } = new AbortController();
    const log = { offset: 0, events: events() };
    await sendLog(reply, { execId: 'x', log, form, encoding: 'utf8', signal, heartbeatMs: 30 });
    return reply;
  });
  await app.listen({ port: 0, host: '127.0.0.1' });
  const { port } = app.server.address() as AddressInfo;
  return new Promise((resolve, reject) => {
    const call = request({ port, host: '127.0.0.1', agent: false }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.once('end', () => resolve(Buffer.concat(chunks)));
    });
    call.on('error', reject);
    call.end();
  });
}

async function* quiet(): AsyncGenerator<LogEvent> {
  await new Promise((resolve) => setTimeout(resolve, 200));
  const exit = {
    exit_code: 0,
    timed_out: false,
    oom_killed: false,
    stdout_bytes: 0,
    stderr_bytes: 0,
    duration_ms: 200,
  };
  yield { kind: 'exit', exit, payload: Buffer.from(JSON.stringify(exit)), offset: 0 };
}

describe('a log while nothing comes', () => {
  it('has lines that say so', async () => {
    const lines = (await bytesOf('ndjson', quiet)).toString().trim().split('\n');
    expect(lines.length).toBeGreaterThan(2);
    for (const line of lines.slice(0, -1)) expect(JSON.parse(line)).toEqual({ heartbeat: true });
    expect(JSON.parse(lines.at(-1) ?? '')).toMatchObject({ exit: { exit_code: 0 } });
  });

  it('has frames that say so', async () => {
    const types = [...new FrameParser().push(await bytesOf('frames', quiet))].map(({ type }) => type);
    expect(types.length).toBeGreaterThan(2);
    expect(new Set(types.slice(0, -1))).toEqual(new Set([frameType.heartbeat]));
    expect(types.at(-1)).toBe(frameType.exit);
  });

  it('as text has nothing: its bytes are the command’s alone', async () => {
    expect((await bytesOf('text', quiet)).length).toBe(0);
  });
});
