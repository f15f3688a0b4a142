import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { DeadlineError } from '@fuse/runtime';
import { temporaryDirectory } from '@fuse/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { connectUnixSocket } from '../unix-socket.ts';
import { FirecrackerApi } from './api.ts';

describe('an API that answers badly', () => {
  let server: Server;
  let answer: (socket: Socket) => void;
  let open: Set<Socket>;
  let api: FirecrackerApi;
  let remove: () => PromiseLike<void>;

  beforeEach(async () => {
    const directory = await temporaryDirectory('fuse-api-');
    remove = directory[Symbol.asyncDispose];
    open = new Set();
    server = createServer((socket) => {
      open.add(socket);
      socket.on('error', () => {}).on('close', () => open.delete(socket));
      socket.once('data', () => answer(socket));
    });
    await once(server.listen(join(directory.path, 'api.sock')), 'listening');
    api = new FirecrackerApi({ connect: () => connectUnixSocket(directory.path, 'api.sock'), deadlineMs: 300 });
  });
  afterEach(async () => {
    for (const socket of open) socket.destroy();
    server.close();
    await remove();
  });

  it.each<[string, (socket: Socket) => void]>([
    ['never', () => {}],
    ['with half a header', (socket) => socket.write('HTTP/1.1 200 OK\r\ncontent-')],
    ['with half a body', (socket) => socket.write('HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"state":')],
  ])('%s is given up after its time, and its connection closed', async (_how, how) => {
    answer = how;
    await expect(api.state()).rejects.toBeInstanceOf(DeadlineError);
    await expect.poll(() => open.size).toBe(0);
  });

  it.each<[string, string]>([
    ['another state', 'HTTP/1.1 200 OK\r\ncontent-length: 17\r\n\r\n{"state":"Asleep"}'],
    ['no JSON', 'HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnull'],
    ['a redirection', 'HTTP/1.1 302 Found\r\nlocation: http://localhost/\r\ncontent-length: 0\r\n\r\n'],
    ['a switch of protocols', 'HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n'],
    ['two lengths', 'HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}'],
  ])('with %s is an error', async (_what, text) => {
    answer = (socket) => socket.end(text);
    await expect(api.state()).rejects.toBeInstanceOf(Error);
  });

  it('slowly is heard out', async () => {
    const text = 'HTTP/1.1 200 OK\r\ncontent-length: 18\r\n\r\n{"state":"Paused"}';
    answer = (socket) => {
      for (const [index, byte] of [...text].entries()) setTimeout(() => socket.write(byte), index);
    };
    expect(await api.state()).toBe('Paused');
  });
});
