/** Certificates that are renewed while the host agent runs. */
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { connect } from 'node:tls';
import { type Authority, certificateAuthority } from '@fuse/testing';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { useCertificates } from './server.ts';

let authority: Authority & AsyncDisposable;
let server: Server;
beforeAll(async () => {
  authority = await certificateAuthority();
  const options = { ...(await authority.server('127.0.0.1')), requestCert: true, rejectUnauthorized: true };
  server = createServer({ ...options, ca: authority.ca }, (_request, response) => response.end('here'));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
}, 60_000);
afterAll(async () => {
  server.closeAllConnections();
  server.close();
  await authority[Symbol.asyncDispose]();
});

/** The certificate that is shown, and what comes back; undefined when we are not let in. */
function ask(ca: string, client: object): Promise<{ shown: string; answer: string | undefined }> {
  const { port } = server.address() as AddressInfo; // it listens on a port
  return new Promise((resolve, reject) => {
    let shown = '';
    let answer = '';
    const socket = connect({ host: '127.0.0.1', port, ca, ...client }, () => {
      shown = socket.getPeerCertificate().fingerprint256;
      socket.write('GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n');
    });
    socket.on('data', (bytes) => {
      answer += bytes;
    });
    socket.on('error', (error) => (shown === '' ? reject(error) : resolve({ shown, answer: undefined })));
    socket.on('end', () => resolve({ shown, answer: answer.includes('here') ? 'here' : undefined }));
  });
}

it('are shown, and clients are trusted by the new authority, from the next connection on', async () => {
  const ours = await authority.client();
  const before = await ask(authority.ca, ours);
  expect(before.answer).toBe('here');
  const renewed = await authority.server('127.0.0.1');
  useCertificates({ server }, { ...renewed, clientCa: authority.ca });
  const after = await ask(authority.ca, ours);
  expect(after.answer).toBe('here');
  expect(after.shown).not.toBe(before.shown);
  expect((await ask(authority.ca, {})).answer).toBeUndefined();

  await using other = await certificateAuthority();
  useCertificates({ server }, { ...renewed, clientCa: other.ca });
  expect((await ask(authority.ca, ours)).answer).toBeUndefined();
  expect((await ask(authority.ca, await other.client())).answer).toBe('here');
});

it('that do not belong together leave everything as it was', async () => {
  const [one, two] = [await authority.server('127.0.0.1'), await authority.server('127.0.0.1')];
  useCertificates({ server }, { ...one, clientCa: authority.ca });
  const client = await authority.client();
  const before = await ask(authority.ca, client);
  expect(() => useCertificates({ server }, { cert: two.cert, key: one.key, clientCa: authority.ca })).toThrow(
    /mismatch/,
  );
  expect(await ask(authority.ca, client)).toEqual(before);
});
