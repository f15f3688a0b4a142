import Fastify from 'fastify';
import { expect, it } from 'vitest';
import { CallerGone } from './caller-signal.ts';
import { answerError } from './errors.ts';

it('a caller that has gone is no failure of the host agent, anything unforeseen is', async () => {
  const lines: string[] = [];
  const app = Fastify({ logger: { level: 'info', stream: { write: (line: string) => void lines.push(line) } } });
  app.setErrorHandler(answerError);
  app.get('/gone', () => Promise.reject(new CallerGone()));
  app.get('/broken', () => Promise.reject(new Error('broken')));
  const failures = () => lines.filter((line) => line.includes('request failed')).length;
  await app.inject('/gone');
  expect(failures()).toBe(0);
  await app.inject('/broken');
  expect(failures()).toBe(1);
  await app.close();
});
