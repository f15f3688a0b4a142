/** TLS all the way: a client that trusts the orchestrator, which shows its host a certificate and trusts the one that it is shown. Upgrades go the same way. */
import https from 'node:https';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { text } from 'node:stream/consumers';
import { connect } from 'node:tls';
import { sleep } from '@fuse/runtime';
import { type Authority, type Certificate, certificateAuthority, upgradeHead } from '@fuse/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { startTestOrchestrator, TEST_TOKEN, type TestOrchestrator } from '../test-orchestrator.ts';
import { HostClient } from './host-client.ts';
import { isHostUnreachable } from './host-transport.ts';
import { TestHost } from './test-host.ts';

let authority: Authority & AsyncDisposable;
let client: Certificate;
let system: TestOrchestrator;
beforeAll(async () => {
  authority = await certificateAuthority();
  const { ca } = authority;
  const server = await authority.server('127.0.0.1');
  client = await authority.client();
  system = await startTestOrchestrator('pglite', {
    config: { tls: server, hostTls: { ca, ...client } },
    host: { tls: { ...server, ca, requestCert: true, rejectUnauthorized: true } },
  });
}, 60_000);
afterAll(async () => {
  await system?.[Symbol.asyncDispose]();
  await authority?.[Symbol.asyncDispose]();
});

const authorization = { Authorization: `Bearer ${TEST_TOKEN}` };

async function call(method: string, path: string, body?: unknown, headers: Record<string, string> = {}) {
  return new Promise<{ status: number | undefined; body: unknown }>((resolve, reject) => {
    const options = { method, ca: authority.ca, agent: false, headers: { ...authorization, ...headers } } as const;
    const request = https.request(`${system.orchestrator.url}${path}`, options, async (response) => {
      const answer = await text(response);
      resolve({ status: response.statusCode, body: answer === '' ? undefined : JSON.parse(answer) });
    });
    request.on('error', reject).end(body === undefined ? undefined : JSON.stringify(body));
  });
}

/** Of whoever answers there. */
const shown = (url: string, options: { ca: string; cert?: string; key?: string }) =>
  new Promise<string>((resolve, reject) => {
    const { hostname, port } = new URL(url);
    const socket = connect({ host: hostname, port: Number(port), ...options }, () => {
      resolve(socket.getPeerCertificate().fingerprint256);
      socket.destroy();
    });
    socket.on('error', reject);
  });

describe('certificates that change in their files', () => {
  it('are used for new connections, both ways, without a restart; what does not fit together is left alone until it does', async () => {
    await using other = await certificateAuthority();
    const [renewed, theirs] = [await authority.server('127.0.0.1'), await authority.client()];
    let files = { tls: system.config.tls, hostTls: system.config.hostTls };
    await using own = await startTestOrchestrator('pglite', {
      config: { tls: files.tls, hostTls: files.hostTls, rereadTls: { read: () => files, everyMs: 20 } },
      host: { tls: { ...(files.tls ?? {}), ca: authority.ca, requestCert: true, rejectUnauthorized: true } },
    });
    const { url } = own.orchestrator;
    const first = await shown(url, { ca: authority.ca });
    // The first half of a renewal.
    files = { ...files, tls: { cert: renewed.cert, key: files.tls?.key ?? '' } };
    await sleep(100);
    expect(await shown(url, { ca: authority.ca })).toBe(first);
    files = { tls: renewed, hostTls: { ca: authority.ca, ...theirs } };
    await expect.poll(() => shown(url, { ca: authority.ca })).not.toBe(first);
    const hears = async () => {
      const headers = { authorization: `Bearer ${TEST_TOKEN}` };
      const options = { method: 'POST', ca: authority.ca, agent: false, headers };
      return new Promise((resolve, reject) => {
        https
          .request(`${url}/v1/hosts/host-1?action=probe`, options, (response) => {
            response.resume();
            resolve(response.statusCode);
          })
          .on('error', reject)
          .end();
      });
    };
    expect(await hears()).toBe(200);
    // Hosts are trusted by what is there now, too.
    files = { tls: renewed, hostTls: { ca: other.ca, ...theirs } };
    await expect.poll(hears).not.toBe(200);
    files = { tls: renewed, hostTls: { ca: authority.ca, ...theirs } };
    await expect.poll(hears).toBe(200);
  });
});

describe('over TLS', () => {
  beforeAll(async () => {
    expect(system.orchestrator.url).toMatch(/^https:/);
    expect((await call('POST', '/v1/environments', { task_id: 'tls' })).status).toBe(201);
  });

  it('commands run', async () => {
    expect(await call('POST', '/v1/environments/fuse-tls?action=exec', { cmd: ['echo', 'hello'] })).toMatchObject({
      status: 200,
      body: { exit_code: 0, stdout: 'hello\n' },
    });
  });

  it('tunnels carry bytes both ways, and both half-closes', async () => {
    const port = await echoAtTheEnd();
    const head = upgradeHead(`/v1/environments/fuse-tls/ports/${port}/connect`, 'fuse-tunnel/1', authorization);
    const { hostname, port: at } = new URL(system.orchestrator.url);
    const options = { host: hostname, port: Number(at), ca: authority.ca, allowHalfOpen: true }; // the last one is not in its type
    const socket = connect(options);
    socket.end(`${head}first second`);
    expect(await text(socket)).toMatch(/^HTTP\/1\.1 101 .*\r\n\r\nall of: first second$/s);
  });

  it('terminals are attached', async () => {
    const url = `${system.orchestrator.url.replace('http', 'ws')}/v1/environments/fuse-tls/attach?cmd=cat&tty=1`;
    const ws = new WebSocket(url, { headers: authorization, ca: authority.ca });
    await new Promise((resolve, reject) => ws.once('open', resolve).once('error', reject));
    ws.terminate();
  });

  it('a wish for an upgrade that a route does not have is an ordinary request', async () => {
    const wish = { connection: 'Upgrade, HTTP2-Settings', upgrade: 'h2c', 'http2-settings': '' };
    expect(await call('GET', '/v1/environments/fuse-tls', undefined, wish)).toMatchObject({ status: 200 });
  });
});

/** Answers, once its client has ended, with what that sent. */
async function echoAtTheEnd(): Promise<number> {
  const server: Server = createServer({ allowHalfOpen: true }, (socket) => {
    let sent = '';
    socket.on('data', (bytes) => {
      sent += bytes;
    });
    socket.on('end', () => socket.end(`all of: ${sent}`));
    server.close();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
}

describe('a host', () => {
  const ask = async (url: string, tls: { ca: string | undefined } & Partial<Certificate>) => {
    const host = { id: 'h', url, token: system.host.token, tls: { cert: undefined, key: undefined, ...tls } };
    await using asking = new HostClient(host);
    return await asking.capacity();
  };

  it('is heard of by whoever has a certificate of its authority alone', async () => {
    const { ca } = authority;
    expect(await ask(system.host.url, { ca, ...client })).toMatchObject({ cpus: 8 });
    await expect(ask(system.host.url, { ca })).rejects.toSatisfy(isHostUnreachable);
    await using foreign = await certificateAuthority();
    await expect(ask(system.host.url, { ca, ...(await foreign.client()) })).rejects.toSatisfy(isHostUnreachable);
  });

  it('is not trusted when it is another one, or of an unknown authority', async () => {
    await using other = await TestHost.start({ token: system.host.token, tls: await authority.server('10.1.2.3') });
    await expect(ask(other.url, { ca: authority.ca })).rejects.toSatisfy(isHostUnreachable);
    await expect(ask(system.host.url, { ca: undefined, ...client })).rejects.toSatisfy(isHostUnreachable);
  });
});
