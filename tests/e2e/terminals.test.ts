/** Terminals and tunnels on a real VM, through the public API, byte for byte. */
import { createHash, randomBytes } from 'node:crypto';
import { type ExecOpened, encodeFrame, frameType } from '@fuse/contract';
import { FrameClient, rawExchange, upgradeHead } from '@fuse/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { killVmmOf } from './support/clear-away.ts';
import { LocalStack } from './support/local-stack.ts';

let stack: LocalStack;
let id: string;
beforeAll(async () => {
  stack = await LocalStack.up();
  const spec = { ram_mb: 512 };
  id = (await stack.client.environments.create({ task_id: 'terminals', spec, env: { GREETING: 'hello' } })).id;
}, 180_000);
afterAll(() => stack?.[Symbol.asyncDispose](), 60_000);

const attachPath = (query: string) => `/v1/environments/${id}/attach?tty=1${query === '' ? '' : `&${query}`}`;
const server = () => ({ url: stack.url, token: stack.token });
const raw = (query = '', behind?: Uint8Array) => FrameClient.raw(server(), attachPath(query), behind);
const webSocket = (query = '') => FrameClient.webSocket(server(), attachPath(query));
const exec = (shell: string) => stack.client.environments.exec(id, { shell, timeout_ms: 30_000 });
const sum = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

/** A prompt that nothing else looks like, and no echo of it before. */
const PROMPT = 'fuse:ready> ';
async function prompted(client: FrameClient): Promise<FrameClient> {
  client.send(frameType.stdin, "bind 'set enable-bracketed-paste off'; PS1='fuse:rea''dy> '\n");
  await client.says(PROMPT);
  return client;
}
/** What a line of input prints. */
let asked = 0;
async function answer(client: FrameClient, line: string): Promise<string> {
  asked += 1;
  const before = client.output.length;
  client.send(frameType.stdin, `${line}; echo 'answ''er' ${asked}\n`);
  // With the next prompt: what is typed before it is there is not for the shell's line editor.
  const end = `\nanswer ${asked}\r\n${PROMPT}`;
  await client.until(({ output }) => output.includes(end, before));
  return client.output.slice(before, client.output.indexOf(end, before) + 1).replaceAll('\r\n', '\n');
}

describe('a raw attach', { timeout: 60_000 }, () => {
  it('is the exact head and the frames of published clients, with what they sent behind the request', async () => {
    const authorization = { Authorization: `Bearer ${stack.token}` };
    const request = upgradeHead(
      attachPath('rows=24&cols=80&cmd=sh&cmd=-c&cmd=read%20x;echo%20%22got%20$x%22;exit%203'),
      'fuse-attach/1',
      authorization,
    );
    const exchange = rawExchange(
      stack.url,
      Buffer.concat([Buffer.from(request), encodeFrame(frameType.stdin, Buffer.from('early\n'))]),
    );
    const { bytes, reset } = await exchange.ended;
    expect(reset).toBe(false);
    const head = 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: fuse-attach/1\r\nConnection: Upgrade\r\n\r\n';
    expect(bytes.subarray(0, head.length).toString()).toBe(head);
    const exit = Buffer.from(encodeFrame(frameType.exit, Buffer.from('{"exit_code":3}')));
    expect(bytes.subarray(-exit.length).equals(exit)).toBe(true);
    const types = new Set<number>();
    let text = '';
    for (let at = head.length; at < bytes.length; ) {
      const size = bytes.readUInt32BE(at + 4);
      types.add(bytes[at] ?? -1);
      if (bytes[at] === frameType.stdout) text += bytes.subarray(at + 8, at + 8 + size);
      at += 8 + size;
    }
    expect([...types].sort()).toEqual([frameType.stdout, frameType.exit]);
    expect(text.endsWith('got early\r\n')).toBe(true);
  });

  it('is a login shell of the environment: its size, colours, variables, UTF-8', async () => {
    const client = await prompted(await raw('rows=33&cols=111'));
    expect(await answer(client, 'stty size; echo $TERM; echo $GREETING; echo $-')).toMatch(
      /33 111\nxterm-256color\nhello\n.*i/,
    );
    expect(Buffer.from(await answer(client, "echo 'grüße 漢字 🎉'"), 'latin1').toString()).toContain(
      '\ngrüße 漢字 🎉\n',
    );
    client.sendJson(frameType.resize, { rows: 20, cols: 70 });
    expect(await answer(client, 'stty size')).toContain('20 70');
    client.sendJson(frameType.resize, { rows: 0, cols: 0 });
    expect(await answer(client, 'stty size')).toContain('20 70');
    client.sendJson(frameType.resize, { rows: 65_535, cols: 65_535 });
    expect(await answer(client, 'stty size')).toContain('65535 65535');
    client.send(frameType.stdin, '\x04');
    await client.ended;
    expect(client.json(frameType.exit)).toEqual({ exit_code: 0 });
  });

  it('passes Ctrl-C, Ctrl-Z and Ctrl-D', async () => {
    const client = await prompted(await raw());
    client.send(frameType.stdin, 'sleep 631; echo "code $?"\n');
    await expect.poll(() => count('sleep 631')).toBe(1);
    client.send(frameType.stdin, '\x03');
    await expect.poll(() => count('sleep 631')).toBe(0);
    client.send(frameType.stdin, 'sleep 632\n');
    await expect.poll(() => count('sleep 632')).toBe(1);
    client.send(frameType.stdin, '\x1a');
    await client.says('Stopped');
    expect(await answer(client, 'jobs')).toContain('sleep 632');
    client.leave();
  });

  it('takes a paste of 1 MB whole', async () => {
    const client = await prompted(await raw());
    client.send(frameType.stdin, 'stty raw -echo; echo go""on; head -c 1000000 | sha256sum; stty sane\n');
    await client.says('goon');
    const paste = randomBytes(1_000_000);
    for (let at = 0; at < paste.length; at += 300_000) client.send(frameType.stdin, paste.subarray(at, at + 300_000));
    await client.says(sum(paste));
    client.leave();
  });

  it('kills its shell and what that started when the client is cut', async () => {
    const client = await prompted(await raw());
    client.send(frameType.stdin, 'sleep 633 & setsid sleep 633 & sleep 633\n');
    await expect.poll(() => count('sleep 633')).toBe(3);
    client.cut();
    await expect.poll(() => count('sleep 633'), { timeout: 15_000 }).toBe(0);
  });
});

async function count(command: string): Promise<number> {
  return Number((await exec(`ps -eo args | grep -c '^${command}' || true`)).stdout.trim());
}

describe('a session', { timeout: 60_000 }, () => {
  it('is the same shell after a reconnect, at the new size, with its scrollback', async () => {
    const first = await prompted(await webSocket('session=work&rows=30&cols=100'));
    expect((first.json(frameType.open) as ExecOpened).exec_id).toBe('work');
    const pid = /\n(\d+)\n/.exec(await answer(first, 'echo $$'))?.[1];
    first.cut();
    const second = await webSocket('session=work&rows=25&cols=90');
    await second.says(`\r\n${pid}\r\n`);
    expect(await answer(second, 'echo $$; stty size')).toContain(`\n${pid}\n25 90\n`);
    second.leave();
    const third = await raw('session=work&rows=40&cols=120&scrollback=0');
    await expect.poll(() => answer(third, 'stty size')).toContain('40 120'); // once the second one's leave is known
    third.leave();
  });

  it('has several viewers, who see and type the same, at a size that all can show', async () => {
    const one = await prompted(await webSocket('session=shared&rows=30&cols=100'));
    const two = await webSocket('session=shared&rows=40&cols=50');
    await two.says(PROMPT);
    expect(await answer(one, 'stty size')).toContain('30 50');
    await two.says('30 50');
    await answer(two, 'echo typed-by-two');
    await one.says('\ntyped-by-two');
    two.leave();
    await expect.poll(async () => answer(one, 'stty size')).toContain('30 100');
    one.send(frameType.stdin, 'exit 6\n');
    expect(await one.ended).toMatchObject({ code: 1000 });
    expect(one.json(frameType.exit)).toMatchObject({ exit_code: 6 });
    const late = await webSocket('session=shared');
    await late.ended;
    expect(late.output).toContain('typed-by-two');
    expect(late.json(frameType.exit)).toMatchObject({ exit_code: 6 });
  });

  it('opens with a ticket, once', async () => {
    const { ticket } = (await (
      await stack.request(`/v1/environments/${id}/tickets`, { method: 'POST', body: '{"for":"attach"}' })
    ).json()) as { ticket: string };
    const open = () => FrameClient.webSocket({ url: stack.url }, attachPath(`ticket=${ticket}`));
    const client = await prompted(await open());
    await expect(open()).rejects.toThrow('401');
    client.send(frameType.stdin, 'exit\n');
    await client.ended;
    expect(await stack.log()).not.toContain(ticket);
  });

  it('lives on when the service is killed and started again', async () => {
    const before = await prompted(await webSocket('session=survivor'));
    await answer(before, 'name=kept');
    await stack.end('SIGKILL');
    expect((await before.ended).code).not.toBe(1000);
    await stack.start();
    const after = await webSocket('session=survivor&scrollback=0');
    expect(await answer(after, 'echo "is $name"')).toContain('\nis kept\n');
    after.leave();
  });
});

describe('a tunnel', { timeout: 60_000 }, () => {
  const tunnelPath = (port: number) => `/v1/environments/${id}/ports/${port}/connect`;
  const connect = (port: number, behind = '') =>
    rawExchange(
      stack.url,
      `${upgradeHead(tunnelPath(port), 'fuse-tunnel/1', { Authorization: `Bearer ${stack.token}` })}${behind}`,
    );
  const SERVER = `
import hashlib, os, socket, threading
listener = socket.create_server(('127.0.0.1', 7001))
def serve(peer):
    digest = hashlib.sha256()
    while chunk := peer.recv(65536):
        digest.update(chunk)
    peer.sendall(digest.hexdigest().encode() + bytes(range(256)) * 4096)
    peer.close()
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],)).start()
`;

  it('is HTTP to a server in the guest', async () => {
    await exec(
      'mkdir -p /srv && echo served > /srv/file && cd /srv && (setsid python3 -m http.server 7000 >/dev/null 2>&1 &)',
    );
    await expect
      .poll(async () => String((await connect(7000, 'GET /file HTTP/1.0\r\n\r\n').ended).bytes), { timeout: 30_000 })
      .toMatch(/^HTTP\/1\.1 101 .*HTTP\/1\.0 200 OK.*\r\n\r\nserved\n$/s);
  });

  it('carries 1 MiB each way and both half-closes', async () => {
    await stack.client.environments.exec(id, {
      shell: '(setsid python3 -c "$CODE" >/dev/null 2>&1 &)',
      env: { CODE: SERVER },
    });
    const sent = randomBytes(1_048_576);
    const probe = async () => {
      const { until, socket } = connect(7001);
      const [status = ''] = (await until((text) => text.includes('\r\n\r\n'))).split('\r\n');
      socket.destroy();
      return status;
    };
    await expect.poll(probe, { timeout: 30_000 }).toContain('101');
    const { socket, ended, until } = connect(7001);
    await until((text) => text.endsWith('\r\n\r\n'));
    socket.end(sent);
    const { bytes, reset } = await ended;
    expect(reset).toBe(false);
    const body = bytes.subarray(bytes.indexOf('\r\n\r\n') + 4);
    expect(body.subarray(0, 64).toString()).toBe(sum(sent));
    expect(body.length - 64).toBe(1_048_576);
    expect(sum(body.subarray(64))).toBe(
      sum(Buffer.alloc(1_048_576, Buffer.from(Array.from({ length: 256 }, (_, at) => at)))),
    );
  });

  it('is refused when nothing listens', async () => {
    const text = String((await connect(7999).ended).bytes);
    expect(text).toMatch(/^HTTP\/1\.1 502 .*"code":"unavailable".*"reason":"connection_refused"/s);
  });
});

describe('the end of the environment', { timeout: 60_000 }, () => {
  it('cuts what is attached when it is paused, and says so', async () => {
    const client = await prompted(await webSocket('session=paused'));
    await answer(client, 'name=frozen');
    await stack.client.environments.pause(id);
    expect(await client.ended).toEqual({ code: 1001, reason: 'paused' });
    await stack.client.environments.resume(id);
    const again = await webSocket('session=paused&scrollback=0');
    expect(await answer(again, 'echo "is $name"')).toContain('\nis frozen\n');
    again.leave();
  });

  it('ends what is attached within 5 s when the VM is killed', async () => {
    const client = await prompted(await webSocket('session=killed'));
    const own = await prompted(await raw());
    const killedAt = performance.now();
    await killVmmOf(stack, id);
    expect((await client.ended).code).toBe(1011);
    expect((await own.ended).code).toBe(-1);
    expect(performance.now() - killedAt).toBeLessThan(5_000);
    expect(own.json(frameType.exit)).toBeUndefined();
  });
});
