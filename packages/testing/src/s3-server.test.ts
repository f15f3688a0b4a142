import { expect, it } from 'vitest';
import { expectNoLeaks, resourceSnapshot } from './leaks.ts';
import { startS3Server } from './s3-server.ts';

it('answers on its endpoint and leaves nothing when disposed', async () => {
  const before = await resourceSnapshot();
  const server = await startS3Server();
  const answer = await fetch(server.config.endpoint, { headers: { connection: 'close' } });
  expect(answer.status).toBe(403);
  expect(await answer.text()).toContain('<Code>AccessDenied</Code>');
  await server[Symbol.asyncDispose]();
  await expect(fetch(server.config.endpoint)).rejects.toThrow();
  await expectNoLeaks(before);
}, 600_000);
