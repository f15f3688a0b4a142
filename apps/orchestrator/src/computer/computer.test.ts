import type { AppError } from '@fuse/contract';
import { rawExchange, upgradeHead } from '@fuse/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestOrchestrator, TEST_TOKEN, type TestOrchestrator } from '../test-orchestrator.ts';

let test: TestOrchestrator;
let call: TestOrchestrator['call'];
let id: string;
beforeAll(async () => {
  test = await startTestOrchestrator('postgres');
  call = test.call;
  ({ id } = (await call('POST', '/v1/environments', { task_id: 'seen', desktop: { width: 1_024, height: 768 } })).body);
  await call('POST', '/v1/environments', { task_id: 'asleep', auto_resume: true });
  await call('POST', '/v1/environments/fuse-asleep?action=pause');
}, 60_000);
afterAll(() => test[Symbol.asyncDispose]());

const upgrade = async (path: string, headers: Record<string, string> = {}) => {
  const authorization = { authorization: `Bearer ${TEST_TOKEN}`, ...headers };
  const { ended } = rawExchange(test.orchestrator.url, upgradeHead(path, 'fuse-vnc/1', authorization));
  const text = (await ended).bytes.toString();
  const [, status, body] = /^HTTP\/1\.1 (\d+) [\s\S]*?\r\n\r\n([\s\S]*)$/.exec(text) ?? [];
  return { status: Number(status), body: JSON.parse(body ?? '') };
};

describe('a display that no environment has', () => {
  const shot = { action: 'screenshot' };

  it('refuses what is no action before it looks for the environment', async () => {
    const malformed = /^malformed action: /;
    const refused: [unknown, RegExp][] = [
      [undefined, malformed],
      ['', malformed],
      ['{"action":', malformed],
      ['[]', malformed],
      ['"screenshot"', malformed],
      [{ action: 7 }, malformed],
      [{}, /^action is required$/],
      [{ action: '' }, /^action is required$/],
      [{ action: null }, /^action is required$/],
    ];
    for (const [body, message] of refused)
      expect(await call('POST', '/v1/environments/none/computer', body), JSON.stringify(body)).toMatchObject({
        status: 400,
        body: { error: { code: 'invalid_argument', message: expect.stringMatching(message) } },
      });
  });

  it('is not found, not running, not up', async () => {
    const ask: [string, (path: string) => Promise<{ status: number; body: { error: AppError } }>][] = [
      ['', (path) => call('POST', path, shot)],
      ['', (path) => call('GET', path)],
      ['/stream', (path) => upgrade(path)],
    ];
    for (const [more, send] of ask) {
      expect(await send(`/v1/environments/none/computer${more}`)).toMatchObject({
        status: 404,
        body: { error: { code: 'not_found', message: 'vm none not found' } },
      });
      expect(await send(`/v1/environments/fuse-asleep/computer${more}`)).toMatchObject({
        status: 409,
        body: { error: { code: 'conflict', details: { state: 'paused' } } },
      });
    }
    const notUp = { error: { code: 'unavailable', message: expect.stringContaining('is not up') } };
    expect(await call('POST', `/v1/environments/${id}/computer`, { ...shot, coordinate: [1, 2] })).toMatchObject({
      status: 503,
      body: notUp,
    });
    expect(await upgrade(`/v1/environments/${id}/computer/stream`)).toMatchObject({ status: 503, body: notUp });
    expect(await call('GET', `/v1/environments/${id}/computer`)).toMatchObject({
      status: 200,
      body: { up: false, width: 0, height: 0, error: expect.stringContaining('is not up') },
    });
  });

  it('is streamed only to who asks for its protocol, and may', async () => {
    for (const path of [`/v1/environments/${id}/computer/stream`, '/v1/environments/none/computer/stream'])
      expect(await call('GET', path)).toMatchObject({
        status: 400,
        body: { error: { code: 'invalid_argument', details: { field: 'Upgrade' } } },
      });
    const answer = await upgrade(`/v1/environments/${id}/computer/stream`, { authorization: 'Bearer wrong' });
    expect(answer.status).toBe(401);
    const { body: plain } = await call('POST', '/v1/api-keys');
    const asPlain = { headers: { authorization: `Bearer ${plain.key}` } };
    expect((await call('POST', `/v1/environments/${id}/computer`, shot, asPlain)).status).toBe(503);
  });
});
