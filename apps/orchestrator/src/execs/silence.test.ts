/**
 * A command that prints nothing for longer than whatever lies on the way keeps idle connections: every way of following it lives on heartbeats, from host to
 * orchestrator and from there to the client. The same on a real VM, for as long as one likes: `node bench/silence.mjs`.
 */
import { readFile } from 'node:fs/promises';
import { type AddressInfo, connect, createServer } from 'node:net';
import { join } from 'node:path';
import { type ExecOpened, frameType } from '@fuse/contract';
import { Disposables } from '@fuse/runtime';
import { FrameClient, temporaryDirectory } from '@fuse/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { quiet } from '../db/test-database.ts';
import { eventsOf } from '../runs/run-testing.ts';
import { callerOf, startTestOrchestrator, TEST_TOKEN, type TestOrchestrator } from '../test-orchestrator.ts';
import { linesOf, readStream } from './exec-testing.ts';

/** Heartbeats come every 15 s. */
const CUT_AFTER_MS = 19_000;
const SILENT_SECONDS = 36;

const disposables = new Disposables(quiet);
let system: TestOrchestrator;
let front: { url: string };
let directory: string;
let call: TestOrchestrator['call'];
beforeAll(async () => {
  directory = disposables.add('directory', await temporaryDirectory()).path;
  system = disposables.add('system', await startTestOrchestrator('postgres', { config: { takeoverMs: 1_000 } }));
  const { url } = disposables.add('proxy of the host', await idleCutting(system.host.url));
  await system.orchestrator.registerHost({ id: 'host-1', url, token: system.host.token });
  front = disposables.add('proxy of clients', await idleCutting(system.orchestrator.url));
  call = callerOf(() => front.url);
  expect((await call('POST', '/v1/environments', { task_id: 'silent' })).status).toBe(201);
}, 60_000);
afterAll(() => disposables[Symbol.asyncDispose]());

/** Relays TCP, and cuts each connection on which nothing came for CUT_AFTER_MS, either way. */
async function idleCutting(target: string): Promise<AsyncDisposable & { url: string }> {
  const open = new Set<() => void>();
  const server = createServer({ noDelay: true }, (client) => {
    const service = connect(Number(new URL(target).port), '127.0.0.1');
    const cut = () => {
      client.destroy();
      service.destroy();
    };
    open.add(cut);
    const idle = setTimeout(cut, CUT_AFTER_MS);
    for (const [from, to] of [
      [client, service],
      [service, client],
    ] as const) {
      from.on('error', () => {}); // 'close' follows
      from.on('data', () => idle.refresh());
      from.once('close', () => {
        clearTimeout(idle);
        open.delete(cut);
        to.destroy();
      });
      from.pipe(to);
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, // it listens on a port
    async [Symbol.asyncDispose]() {
      for (const cut of open) cut();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

describe('a silent command', { timeout: 120_000 }, () => {
  const environment = '/v1/environments/fuse-silent';
  const shell = `sleep ${SILENT_SECONDS}; echo end`;
  const socket = (path: string) =>
    FrameClient.webSocket({ url: front.url, token: TEST_TOKEN }, `${environment}${path}`);
  const stream = (path: string, body: object) =>
    readStream({ orchestrator: { ...system.orchestrator, url: front.url } }, `${environment}${path}`, {
      method: 'POST',
      body: JSON.stringify(body),
    });

  it.concurrent('is followed to its end as lines of JSON', async () => {
    const answer = await stream('/execs?stream=ndjson', { shell });
    const lines = linesOf(answer.bytes);
    expect(answer.isWhole).toBe(true);
    expect(lines.filter((line) => 'heartbeat' in line).length).toBeGreaterThanOrEqual(2);
    expect(lines.at(-1)).toMatchObject({ exit: { exit_code: 0, stdout_bytes: 4 } });
  });

  it.concurrent('is followed to its end as frames', async () => {
    const answer = await stream('/execs?stream=frames', { shell });
    expect([answer.isWhole, answer.bytes.toString().includes('end\n')]).toEqual([true, true]);
  });

  it.concurrent('is answered at its end by ?action=exec', async () => {
    const answer = await stream('?action=exec', { shell, timeout_ms: 120_000 });
    expect([answer.status, answer.isWhole]).toEqual([200, true]);
    expect(JSON.parse(answer.bytes.toString())).toMatchObject({ exit_code: 0, stdout: 'end\n' });
  });

  it.concurrent('is followed to its end over a WebSocket, as a command and as a terminal', async () => {
    const command = await socket('/execs/connected/connect');
    command.sendJson(frameType.spec, { shell });
    await command.until(({ frames }) => frames.length > 0);
    expect(command.json(frameType.open) as ExecOpened).toMatchObject({ exec_id: 'connected' });
    const terminal = await socket(`/attach?tty=1&session=silent&cmd=sh&cmd=-c&cmd=${encodeURIComponent(shell)}`);
    for (const client of [command, terminal]) {
      expect(await client.ended).toMatchObject({ code: 1_000 });
      expect(client.output).toContain('end');
      expect(client.json(frameType.exit)).toMatchObject({ exit_code: 0 });
    }
  });

  it.concurrent('of a run is followed to its end by its events', async () => {
    const { body: run } = await call('POST', '/v1/runs', { shell });
    const events = await eventsOf(call, run.id);
    expect(events.at(-1)?.data).toMatchObject({ state: 'succeeded' });
  });

  it.concurrent('as a startup takes longer than its driver’s lease many times over, is told when it is done, and is started once', async () => {
    const count = join(directory, 'starts');
    const startup_script = `echo started >> ${count}; sleep ${SILENT_SECONDS}`;
    const body = { task_id: 'long', wait: false, startup_script, startup_script_timeout_seconds: 3_600 };
    expect((await call('POST', '/v1/environments', body)).status).toBe(202);
    const headers = { authorization: `Bearer ${TEST_TOKEN}` };
    const events = await fetch(`${front.url}/v1/environments/fuse-long/events`, { headers });
    let told = '';
    for await (const piece of events.body ?? []) {
      told += Buffer.from(piece).toString();
      if (told.includes('"state":"running"') || told.includes('"state":"failed"')) break;
    }
    expect(told).toContain('"state":"running"');
    expect(await readFile(count, 'utf8')).toBe('started\n');
    expect((await call('GET', '/v1/environments/fuse-long')).body).toMatchObject({ state: 'running' });
  });
});
