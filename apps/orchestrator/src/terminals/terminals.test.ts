import { type ExecOpened, encodeFrame, frameType } from '@fuse/contract';
import { FrameClient, rawExchange, upgradeHead } from '@fuse/testing';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestOrchestrator, TEST_TOKEN, type TestOrchestrator } from '../test-orchestrator.ts';

let scene: TestOrchestrator;
let id: string;
let vmId: string;
beforeAll(async () => {
  scene = await startTestOrchestrator('pglite');
  id = await create('terminals');
  vmId = [...scene.host.vms.keys()][0] ?? '';
}, 60_000);
afterAll(() => scene?.[Symbol.asyncDispose]());

async function create(task_id: string, more: object = {}): Promise<string> {
  const { status, body } = await scene.call('POST', '/v1/environments', { task_id, ...more });
  expect(status).toBe(201);
  return body.id;
}

const url = () => scene.orchestrator.url;
const server = () => ({ url: url(), token: TEST_TOKEN });
const attachPath = (query: string, environment = id) => `/v1/environments/${environment}/attach?tty=1&${query}`;
const raw = (query: string, behind?: Uint8Array) => FrameClient.raw(server(), attachPath(query), behind);
const webSocket = (query: string) => FrameClient.webSocket(server(), attachPath(query));
const stdin = (text: string) => Buffer.from(encodeFrame(frameType.stdin, Buffer.from(text)));
const execsOf = (vm = vmId) => [...(scene.host.vms.get(vm)?.execs.values() ?? [])];
const refusal = async (path: string, headers: Record<string, string> = { Authorization: `Bearer ${TEST_TOKEN}` }) => {
  const { bytes } = await rawExchange(url(), upgradeHead(path, 'fuse-attach/1', headers)).ended;
  const [head = '', body = ''] = String(bytes).split('\r\n\r\n');
  return { status: Number(head.split(' ')[1]), ...JSON.parse(body).error };
};

describe('a raw attach', () => {
  it('gives a shell of its own, frames sent behind the request included, and its exit code alone', async () => {
    const pieces = [
      stdin(''),
      Buffer.from(encodeFrame(200, Buffer.from('unknown'))),
      stdin('echo "in $((40+2))"\n'),
      stdin('exit 3\n'),
    ];
    const client = await raw('rows=10&cols=20', Buffer.concat(pieces));
    expect(await client.ended).toEqual({ code: 0, reason: '' });
    expect(client.output).toBe('in 42\n');
    expect(client.frames.map(({ type }) => type)).toEqual([frameType.stdout, frameType.exit]);
    expect(String(Buffer.from(client.frames.at(-1)?.payload ?? []))).toBe('{"exit_code":3}');
  });

  it('takes frames cut anywhere', async () => {
    const client = await raw('cmd=cat');
    const bytes = Buffer.concat([stdin('one '), stdin(''), stdin('two '), stdin('three')]);
    for (const byte of bytes) {
      client.sendBytes(Buffer.from([byte]));
      await new Promise((resolve) => setImmediate(resolve));
    }
    await client.says('one two three');
    client.leave();
  });

  it('kills what it started when the client leaves, however that is', async () => {
    for (const leave of ['leave', 'cut'] as const) {
      const client = await raw('cmd=sleep&cmd=600');
      const exec = execsOf().at(-1);
      expect(exec?.status).toMatchObject({ state: 'running', argv: ['sleep', '600'] });
      client[leave]();
      await expect.poll(() => exec?.status.state, { timeout: 5_000 }).toBe('exited');
    }
  });

  it('is cut by a frame that is too big, before it is there, and its shell killed', async () => {
    const client = await raw('cmd=cat');
    const exec = execsOf().at(-1);
    const head = Buffer.alloc(8);
    head.writeUInt32BE(1_048_577, 4);
    client.sendBytes(head);
    expect((await client.ended).code).toBe(-1);
    await expect.poll(() => exec?.status.state, { timeout: 5_000 }).toBe('exited');
  });

  it('lives through noise: any bytes, cut anywhere', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.uint8Array({ minLength: 1, maxLength: 300 }), { minLength: 1 }), async (noise) => {
        const client = await raw('cmd=cat', noise[0]);
        const exec = execsOf().at(-1);
        for (const bytes of noise.slice(1)) client.sendBytes(bytes);
        client.leave();
        await client.ended;
        await expect.poll(() => exec?.status.state, { timeout: 5_000 }).toBe('exited');
      }),
      { numRuns: 40 },
    );
    expect((await scene.call('GET', `/v1/environments/${id}`)).status).toBe(200);
  });

  it('takes frames of any size in any pieces, and gives the same bytes back', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.uint8Array({ maxLength: 3_000 }), { minLength: 1, maxLength: 30 }),
        fc.array(fc.integer({ min: 1, max: 5_000 }), { minLength: 1 }),
        async (payloads, cuts) => {
          const all = Buffer.concat(payloads);
          const frames = Buffer.concat(payloads.map((payload) => encodeFrame(frameType.stdin, payload)));
          const client = await raw(`cmd=head&cmd=-c&cmd=${all.length}`);
          for (let at = 0, turn = 0; at < frames.length; turn += 1) {
            const size = cuts[turn % cuts.length] ?? 1;
            client.sendBytes(frames.subarray(at, at + size));
            at += size;
            if (turn % 3 === 0) await new Promise((resolve) => setImmediate(resolve));
          }
          await client.ended;
          expect(Buffer.from(client.output, 'latin1').equals(all)).toBe(true);
          expect(client.json(frameType.exit)).toEqual({ exit_code: 0 });
        },
      ),
      { numRuns: 30 },
    );
  });

  it('ignores sizes that are none and takes the largest', async () => {
    for (const [query, size] of [
      ['rows=0&cols=0', { rows: 24, cols: 80 }],
      ['rows=65536&cols=-1', { rows: 24, cols: 80 }],
      ['', { rows: 24, cols: 80 }],
      ['rows=65535&cols=65535', { rows: 65_535, cols: 65_535 }],
      ['rows=7', { rows: 7, cols: 80 }],
    ] as const) {
      const client = await raw(`cmd=cat&${query}`);
      const exec = execsOf().at(-1);
      expect(exec?.size).toEqual(size);
      client.sendJson(frameType.resize, { rows: 0, cols: 0 });
      client.send(frameType.resize, 'nonsense');
      client.sendJson(frameType.resize, { rows: 65_535, cols: 65_535 });
      await expect.poll(() => exec?.size).toEqual({ rows: 65_535, cols: 65_535 });
      client.leave();
    }
  });

  it('is refused in this order: token, protocol, tty, environment, state', async () => {
    expect(await refusal('/v1/environments/none/attach', { Authorization: 'Bearer x' })).toMatchObject({ status: 401 });
    const plain = await scene.call('GET', '/v1/environments/none/attach');
    expect(plain).toMatchObject({
      status: 400,
      body: { error: { code: 'invalid_argument', message: 'attach requires Upgrade: fuse-attach/1' } },
    });
    expect(await refusal('/v1/environments/none/attach')).toMatchObject({
      status: 400,
      message: 'attach requires tty=1; use ?action=exec for non-interactive commands',
    });
    expect(await refusal('/v1/environments/none/attach?tty=true')).toMatchObject({ status: 404, code: 'not_found' });
    expect(await refusal(attachPath('session=a/b'))).toMatchObject({ status: 400, details: { field: 'session' } });
    expect(await refusal(attachPath('scrollback=x'))).toMatchObject({
      status: 400,
      details: { field: 'scrollbackBytes' },
    });
    expect(await refusal(attachPath('cmd='))).toMatchObject({ status: 400, details: { field: 'cmd' } });
    expect(await refusal(attachPath('cmd=/no/such/thing'))).toMatchObject({ status: 400, code: 'invalid_argument' });
    const paused = await create('paused-terminal');
    await scene.call('POST', `/v1/environments/${paused}?action=pause`);
    expect(await refusal(attachPath('', paused))).toMatchObject({ status: 409, details: { state: 'paused' } });
  });
});

describe('a session', () => {
  it('outlives its connections: the same shell, its scrollback and the current size', async () => {
    const first = await raw('session=work&rows=30&cols=100');
    await first.until(({ frames }) => frames.length > 0);
    const opened = first.json(frameType.open) as ExecOpened;
    expect(opened).toMatchObject({ exec_id: 'work', offset: 0, tty: { rows: 30, cols: 100 } });
    first.send(frameType.stdin, 'name=fuse; echo ready\n');
    await first.says('ready');
    first.cut();
    const second = await webSocket('session=work&rows=20&cols=60');
    await second.says('ready');
    expect(second.json(frameType.open)).toMatchObject({ exec_id: 'work', tty: { rows: 20, cols: 60 } });
    second.send(frameType.stdin, 'echo "still $name"\n');
    await second.says('still fuse');
    second.leave();
    const none = await webSocket('session=work&scrollback=0');
    none.send(frameType.stdin, 'echo fresh; exit 4\n');
    expect(await none.ended).toMatchObject({ code: 1000 });
    expect(none.output).toBe('fresh\n');
    expect(none.json(frameType.exit)).toMatchObject({ exit_code: 4, timed_out: false });
    expect(execsOf().filter((exec) => exec.id === 'work')).toHaveLength(1);
  });

  it('that has ended gives its scrollback and its exit', async () => {
    const again = await webSocket('session=work');
    expect(await again.ended).toMatchObject({ code: 1000, reason: 'exited' });
    expect(again.output).toContain('still fuse');
    const old = await raw('session=work');
    await old.ended;
    expect(String(Buffer.from(old.frames.at(-1)?.payload ?? []))).toBe('{"exit_code":4}');
  });

  it('without a name gets one over WebSocket', async () => {
    const client = await webSocket('cmd=cat');
    await client.until(({ frames }) => frames.length > 0);
    const { exec_id } = client.json(frameType.open) as ExecOpened;
    const other = await webSocket(`session=${exec_id}`);
    client.send(frameType.stdin, 'seen by both\n');
    await Promise.all([client.says('seen by both'), other.says('seen by both')]);
    other.send(frameType.stdin, 'from the other\n');
    await client.says('from the other');
    client.leave();
    other.sendJson(frameType.signal, { signal: 'SIGTERM' });
    await other.ended;
    expect(other.json(frameType.exit)).toMatchObject({ signal: 'SIGTERM' });
  });

  it('is refused when the exec of that name has no terminal', async () => {
    await scene.call('POST', `/v1/environments/${id}/execs`, { id: 'no-terminal', cmd: ['sleep', '600'] });
    expect(await refusal(attachPath('session=no-terminal'))).toMatchObject({
      status: 409,
      details: { reason: 'no_terminal' },
    });
  });
});

describe('a terminal whose host agent restarts', () => {
  it('goes on without the client noticing: no byte is missing or twice', async () => {
    const script = 'i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo "line $i"; done; read x; echo "got $x"; exit 5';
    for (const open of [raw, webSocket]) {
      const client = await open(`session=restart-${open.name}&cmd=sh&cmd=-c&cmd=${encodeURIComponent(script)}`);
      await client.says('line 100\n');
      await scene.host.stop();
      client.send(frameType.stdin, 'typed ');
      await scene.host.listen();
      client.send(frameType.stdin, 'meanwhile\n');
      await client.ended;
      const lines = Array.from({ length: 2000 }, (_, at) => `line ${at + 1}\n`).join('');
      expect(client.output).toBe(`${lines}got typed meanwhile\n`);
      expect(client.json(frameType.exit)).toMatchObject({ exit_code: 5 });
    }
  }, 60_000);
});

describe('a terminal that is ended from outside', () => {
  const ended = async (task: string, end: (id: string, vm: string) => unknown) => {
    const environment = await create(task);
    const vm = [...scene.host.vms.keys()].at(-1) ?? '';
    const ws = await FrameClient.webSocket(server(), attachPath('session=s&cmd=cat', environment));
    const own = await FrameClient.raw(server(), attachPath('cmd=cat', environment));
    await ws.until(({ frames }) => frames.length > 0);
    await end(environment, vm);
    // As the real one: nothing stays connected to a VM that is gone.
    if (scene.host.vms.get(vm)?.vm.state !== 'dead') scene.host.cutConnections();
    const how = await ws.ended;
    expect(ws.frames.some(({ type }) => type === frameType.exit)).toBe(false);
    await own.ended;
    expect(own.frames.some(({ type }) => type === frameType.exit)).toBe(false);
    return how;
  };

  it('says why: the VM died', async () => {
    expect(await ended('dies', (_, vm) => scene.host.killVm(vm, 'the VMM ended by signal SIGKILL'))).toEqual({
      code: 1011,
      reason: 'the VMM ended by signal SIGKILL',
    });
    expect((await scene.call('GET', '/v1/environments/fuse-dies')).status).toBe(404);
  });

  it('says why: paused', async () => {
    const how = await ended('pauses', (environment) =>
      scene.call('POST', `/v1/environments/${environment}?action=pause`),
    );
    expect(how).toEqual({ code: 1001, reason: 'paused' });
  });

  it('says why: destroyed', async () => {
    const how = await ended('destroyed', (environment) => scene.call('DELETE', `/v1/environments/${environment}`));
    expect(how).toEqual({ code: 1001, reason: 'destroyed' });
  });

  it('says why: restored to a moment before', async () => {
    const how = await ended('restored', async (environment) => {
      const { body } = await scene.call('POST', `/v1/environments/${environment}/snapshots`, {});
      const restored = await scene.call('POST', `/v1/snapshots/${body.id}?action=restore`);
      expect(restored.status).toBe(204);
    });
    expect(how.code).toBe(1011);
    expect(how.reason).toContain('restored');
  });
});

describe('an environment with an idle timeout', () => {
  it('is resumed by an attach when it may be', async () => {
    const environment = await create('auto', { auto_resume: true });
    await scene.call('POST', `/v1/environments/${environment}?action=pause`);
    const client = await FrameClient.raw(server(), attachPath('cmd=echo&cmd=awake', environment));
    await client.ended;
    expect(client.output).toBe('awake\n');
  });
});
