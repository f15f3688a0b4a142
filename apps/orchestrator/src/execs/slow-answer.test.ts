import { request } from 'node:http';
import type { AddressInfo } from 'node:net';
import Fastify, { type FastifyInstance, type FastifyReply } from 'fastify';
import { afterEach, describe, expect, it } from 'vitest';
import { answerSlowly } from './slow-answer.ts';

type Work = (sure: () => void) => Promise<unknown>;
let app: FastifyInstance | undefined;
afterEach(() => app?.close());

async function answerOf(work: Work): Promise<{ status: number; body: string; isWhole: boolean }> {
  app = Fastify();
  app.get('/', (_request: unknown, reply: FastifyReply) => answerSlowly(reply, work, 20));
  await app.listen({ port: 0, host: '127.0.0.1' });
  const { port } = app.server.address() as AddressInfo;
  return new Promise((resolve, reject) => {
    const call = request({ port, host: '127.0.0.1', agent: false }, (response) => {
      let body = '';
      response.on('data', (chunk: Buffer) => {
        body += chunk.toString();
      });
      response.on('error', () => {});
      response.once('close', () => resolve({ status: response.statusCode ?? 0, body, isWhole: response.complete }));
    });
    call.on('error', reject);
    call.end();
  });
}
const later = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

describe('a slow answer', () => {
  it('is an ordinary one when it comes soon', async () => {
    const answer = await answerOf(async (sure) => {
      sure();
      return { a: 1 };
    });
    expect(answer).toEqual({ status: 200, body: '{"a":1}', isWhole: true });
  });

  it('begins with space, which parsers pass over', async () => {
    const { status, body, isWhole } = await answerOf(async (sure) => {
      sure();
      await later(150);
      return { a: 1 };
    });
    expect({ status, isWhole }).toEqual({ status: 200, isWhole: true });
    expect(body).toMatch(/^ {2,}\{"a":1\}\n$/);
    expect(JSON.parse(body)).toEqual({ a: 1 });
  });

  it('has its own status while nothing is sure, however long that takes', async () => {
    const { status } = await answerOf(async () => {
      await later(100);
      throw Object.assign(new Error('no'), { statusCode: 409 });
    });
    expect(status).toBe(409);
  });

  it('that fails after its head was sent is cut, never made up', async () => {
    const { status, body, isWhole } = await answerOf(async (sure) => {
      sure();
      await later(100);
      throw new Error('its end is not known');
    });
    expect({ status, isWhole }).toEqual({ status: 200, isWhole: false });
    expect(body.trim()).toBe('');
  });
});
