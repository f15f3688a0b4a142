/** Connections through the host agent to TCP servers in a guest that has no network. */
import { createHash, randomBytes } from 'node:crypto';
import http from 'node:http';
import { connect, type Socket } from 'node:net';
import { HOST_TUNNEL_PROTOCOL, tunnelBytes, tunnelEnd, tunnelFrames } from '@fuse/host-protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TestHost } from '../vms/test-host.ts';

const SERVERS = `
import http.server, socket, socketserver, threading
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536): self.request.sendall(data)
        self.request.sendall(b'END')
class Dropper(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(b'x' * 1000)
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b'\\1\\0\\0\\0\\0\\0\\0\\0'); self.request.close()
class Greeter(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(b'g' * 3000000)
class Server(socketserver.ThreadingTCPServer):
    daemon_threads = allow_reuse_address = True
class Server6(Server):
    address_family = socket.AF_INET6
for server in [Server(('127.0.0.1', 7001), Echo), Server(('127.0.0.1', 7002), Dropper), Server(('127.0.0.1', 7003), Greeter), Server6(('::1', 7004), Echo)]:
    threading.Thread(target=server.serve_forever).start()
print('ready', flush=True)
http.server.HTTPServer(('127.0.0.1', 7005), http.server.SimpleHTTPRequestHandler).serve_forever()
`;

let host: TestHost;
let vm: string;
beforeAll(async () => {
  host = await TestHost.open();
  vm = (await host.create()).id;
  const script = Buffer.from(SERVERS).toString('base64');
  await host.call('PUT', `/v1/vms/${vm}/files`, { files: [{ path: '/workspace/servers.py', content_base64: script }] });
  const started = await host.shell(
    vm,
    'python3 /workspace/servers.py > /run/ready & until grep ready /run/ready; do sleep 0.1; done',
  );
  expect(started.stdout.toString()).toBe('ready\n');
});
afterAll(() => host[Symbol.asyncDispose]());

function dial(port: number | string, of = vm): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const { hostname, port: at } = new URL(host.url);
    const request = http.request({
      ...{ hostname, port: at, path: `/v1/vms/${of}/ports/${port}/connect`, agent: false },
      createConnection: () => connect({ host: hostname, port: Number(at), allowHalfOpen: true }),
      headers: { ...host.authorization, connection: 'Upgrade', upgrade: HOST_TUNNEL_PROTOCOL },
    });
    request.on('error', reject);
    request.on('upgrade', (_response, socket: Socket, head) => {
      socket.unshift(head);
      resolve(socket);
    });
    request.on('response', (response) => {
      response.toArray().then((chunks) => {
        const { error } = JSON.parse(Buffer.concat(chunks).toString()) as { error: { code: string; details?: object } };
        reject(Object.assign(new Error('refused'), error, { status: response.statusCode }));
      }, reject);
    });
    request.end();
  });
}

async function all(socket: Socket): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const bytes of tunnelBytes(socket.iterator({ destroyOnReturn: false }))) chunks.push(bytes);
  return Buffer.concat(chunks);
}

function send(socket: Socket, bytes: Uint8Array | string): void {
  for (const frame of tunnelFrames(Buffer.from(bytes))) socket.write(frame);
}

describe('a tunnel to a port', () => {
  it.each([7001, 7004])('carries bytes both ways, and its half-close, to %i', async (port) => {
    const bytes = randomBytes(2_000_000);
    const socket = await dial(port);
    const received = all(socket);
    send(socket, bytes);
    socket.end(tunnelEnd());
    const echoed = await received;
    expect(echoed.length).toBe(bytes.length + 3);
    const sum = (each: Buffer) => createHash('sha256').update(each).digest('hex');
    expect(sum(echoed.subarray(0, -3))).toBe(sum(bytes));
    socket.destroy();
  });

  it('serves HTTP, one request after the other and many at once', async () => {
    const get = async () => {
      const socket = await dial(7005);
      send(socket, 'GET /servers.py HTTP/1.0\r\n\r\n');
      return (await all(socket)).toString();
    };
    for (const answer of [await get(), ...(await Promise.all(Array.from({ length: 20 }, get)))])
      expect(answer).toContain('200 OK');
  });

  it('gives the last byte of a server that closes at once', async () => {
    const socket = await dial(7003);
    expect((await all(socket)).length).toBe(3_000_000);
    socket.destroy();
  });

  it('of a connection that is reset is an error, not an end', async () => {
    const socket = await dial(7002);
    await expect(all(socket)).rejects.toThrow();
  });

  it('whose bytes were not read yet is an error too, once its VM is gone', async () => {
    const other = (await host.create()).id;
    await host.shell(
      other,
      `setsid python3 -c 'import socket,time
server = socket.create_server(("127.0.0.1", 7003)); connection = server.accept()[0]
connection.sendall(b"g" * 300000); time.sleep(600)' > /dev/null 2>&1 & sleep 3`,
    );
    const socket = await dial(7003, other);
    socket.pause();
    await host.destroy(other);
    await expect(all(socket)).rejects.toThrow();
  });

  it.each([
    [6999, 409, 'conflict', { reason: 'connection_refused' }],
    [0, 400, 'invalid_argument', { field: 'port' }],
    ['http', 400, 'invalid_argument', { field: 'port' }],
    [65_536, 400, 'invalid_argument', { field: 'port' }],
  ])('to %s is refused before the switch', async (port, status, code, details) => {
    await expect(dial(port)).rejects.toMatchObject({ status, code, details });
  });

  it('to a VM that is not there, or does not run, is refused', async () => {
    await expect(dial(7001, 'nobody')).rejects.toMatchObject({ status: 404, code: 'not_found' });
  });

  it('ends with its client: the server sees it', async () => {
    const established = async () =>
      (await host.shell(vm, 'ss -tn state established | grep -c :7001 || true')).stdout.toString().trim();
    const socket = await dial(7001);
    send(socket, 'x');
    await new Promise((resolve) => socket.once('data', resolve));
    expect(Number(await established())).toBeGreaterThan(0);
    socket.destroy();
    await expect.poll(established, { timeout: 10_000, interval: 200 }).toBe('0');
  });

  it('ends when its VM does', async () => {
    const other = (await host.create()).id;
    await host.startExec(
      other,
      ['python3', '-c', 'import http.server; http.server.test(port=7005, bind="127.0.0.1")'],
      { timeout_ms: 0 },
    );
    await expect
      .poll(
        () =>
          dial(7005, other).then(
            (each) => each.destroy() !== undefined,
            () => false,
          ),
        { timeout: 60_000 },
      )
      .toBe(true);
    const socket = await dial(7005, other);
    const closed = new Promise((resolve) => socket.on('error', () => {}).once('close', resolve));
    process.kill(await host.vmmPid(other), 'SIGKILL');
    await closed;
    await host.destroy(other);
  });
});
