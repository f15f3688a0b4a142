import { createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { type TemporaryDirectory, temporaryDirectory } from '@fuse/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { withQmp } from './qmp.ts';

const banner = '{"QMP": {"version": {}, "capabilities": []}}\r\n';
let directory: TemporaryDirectory;
let server: Server | undefined;
const sockets = new Set<Socket>();

beforeEach(async () => {
  directory = await temporaryDirectory();
});
afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  await new Promise((resolve) => (server === undefined ? resolve(undefined) : server.close(resolve)));
  await directory[Symbol.asyncDispose]();
});

/** A peer that answers each command line with what `answer` says; undefined is silence. */
async function peer(answer: (command: { execute: string; id: number }) => string | undefined, first = banner) {
  server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.write(first);
    socket.on('data', (text) => {
      for (const line of text.toString().trim().split('\n')) {
        const reply = answer(JSON.parse(line) as { execute: string; id: number });
        if (reply !== undefined) socket.write(reply);
      }
    });
  });
  await new Promise<void>((resolve) => server?.listen(join(directory.path, 'qmp.sock'), resolve));
}

const talk = (command: string) =>
  withQmp({ directory: directory.path, socketName: 'qmp.sock', deadlineMs: 300 }, (qmp) => qmp.execute(command));

describe('QMP', () => {
  it('negotiates, finds each answer by its number among events, and gives what it returns', async () => {
    await peer(({ execute, id }) =>
      execute === 'qmp_capabilities'
        ? `{"return": {}, "id": ${id}}\r\n`
        : `{"event": "STOP"}\r\n{"return": 1, "id": 99}\r\n{"return": {"ok": true}, "id": ${id}}\r\n`,
    );
    expect(await talk('stop')).toEqual({ ok: true });
  });

  it('gives the reason when a command is refused', async () => {
    await peer(({ execute, id }) =>
      execute === 'qmp_capabilities'
        ? `{"return": {}, "id": ${id}}\r\n`
        : `{"error": {"class": "GenericError", "desc": "not now"}, "id": ${id}}\r\n`,
    );
    await expect(talk('cont')).rejects.toThrow('QEMU refused cont: not now');
  });

  it.each([
    ['says nothing', '', undefined],
    ['does not answer', banner, undefined],
    ['sends what is no JSON', 'hello\n', undefined],
    ['sends a line without end', 'x'.repeat(2_000_000), undefined],
    ['answers with another shape', banner, '{"return": 1, "id": "one"}\n'],
  ])(
    'fails within its deadline when the peer %s',
    async (_, first, reply) => {
      await peer(() => reply, first);
      await expect(talk('stop')).rejects.toThrow();
    },
    2_000,
  );

  it('fails when the peer hangs up, or is not there', async () => {
    await peer(() => {
      for (const socket of sockets) socket.destroy();
      return undefined;
    });
    await expect(talk('stop')).rejects.toThrow();
    await expect(
      withQmp({ directory: directory.path, socketName: 'none.sock', deadlineMs: 300 }, async () => {}),
    ).rejects.toMatchObject({ code: 'ENOENT' });
  });
});
