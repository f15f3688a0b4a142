import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import { createLogger } from '@fuse/runtime';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type JoinConfig, Joining } from './joining.ts';

const at = '2026-01-01T00:00:00.000Z';
const amounts = { cpus: 1, ram_mb: 1, storage_gb: 1, vm_count: 1 };
const host = { id: 'h1', url: 'http://10.0.0.2:8090', state: 'active', capacity: amounts, allocated: amounts };
const joined = { host: { ...host, last_seen: at, created_at: at, updated_at: at }, cluster_tag: 'c1' };
const log = createLogger({ name: 'test', level: 'silent' });

let server: Server;
let config: JoinConfig;
let calls: { bearer: string | undefined; body: unknown }[];
/** What each call is answered with; the last one again and again. */
let answers: ((bearer: string | undefined) => number)[];
let answered: () => void;

beforeEach(async () => {
  calls = [];
  answered = () => {};
  server = createServer(async (request, response) => {
    const bearer = request.headers.authorization?.replace('Bearer ', '');
    calls.push({ bearer, body: await json(request) });
    const status = (answers.length > 1 ? answers.shift() : answers[0])?.(bearer) ?? 500;
    response.writeHead(status).end(JSON.stringify(status === 201 ? joined : { error: {} }));
    answered();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  config = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    ca: undefined,
    token: 'the-join-token',
    id: 'h1',
    advertiseUrl: 'http://10.0.0.2:8090',
    region: 'eu',
    labels: { disk: 'fast' },
  };
});
afterEach(() => new Promise((resolve) => server.close(resolve)));

async function untilCalls(count: number): Promise<void> {
  while (calls.length < count) await new Promise<void>((resolve) => (answered = resolve));
}

describe('joining', () => {
  it('shows its own token first, then the join token, and tells how it is reached', async () => {
    answers = [(bearer) => (bearer === 'the-join-token' ? 201 : 401)];
    await using joining = new Joining(config, { token: 'its-own-token', log });
    joining.start();
    await untilCalls(2);
    expect(calls.map(({ bearer }) => bearer)).toEqual(['its-own-token', 'the-join-token']);
    expect(calls[1]?.body).toEqual({
      id: 'h1',
      url: 'http://10.0.0.2:8090',
      token: 'its-own-token',
      region: 'eu',
      labels: { disk: 'fast' },
    });
  });

  it('needs no join token when it is known', async () => {
    answers = [() => 201];
    await using joining = new Joining({ ...config, token: undefined }, { token: 'its-own-token', log });
    joining.start();
    await untilCalls(1);
    expect(calls).toHaveLength(1);
  });

  it('is tried again until it succeeds', async () => {
    answers = [() => 503, () => 201];
    await using joining = new Joining(config, { token: 'its-own-token', log });
    joining.start();
    await untilCalls(2);
    expect(calls.map(({ bearer }) => bearer)).toEqual(['its-own-token', 'its-own-token']);
  });

  it('ends with the host agent, whatever it waits for', async () => {
    answers = [() => 503];
    const joining = new Joining({ ...config, url: 'http://127.0.0.1:1' }, { token: 'its-own-token', log });
    joining.start();
    await joining[Symbol.asyncDispose]();
    expect(calls).toHaveLength(0);
  });
});
