import { mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FuseClient } from '../client.ts';
import { IntegrityError } from '../errors.ts';
import { TestServer } from '../test-server.ts';
import { nodeFetch, saveOutput, uploadFile } from './index.ts';

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'fuse-sdk-'));
});
afterEach(() => rm(directory, { recursive: true }));

const bytes = new Uint8Array(300_000).map((_, index) => index * 7);

async function started(script: Parameters<typeof TestServer.start>[0] = {}) {
  const server = await TestServer.start({ outputs: [{ path: 'x.bin', bytes }], ...script });
  const client = new FuseClient({ baseUrl: server.url, fetch: nodeFetch(), random: () => 0 });
  const run = await client.runs.create({ shell: 'true' });
  const [output] = run.outputs;
  if (output === undefined) throw new Error('no output');
  return { server, client, run, output };
}

describe('saveOutput', () => {
  it('writes the checked bytes, again from the start when a download breaks off', async () => {
    const { server, client, run, output } = await started({ cutDownloadsAfterBytes: [100_000, 5] });
    await using _ = server;
    await saveOutput(client, run.id, output, join(directory, 'x.bin'));
    expect(await readFile(join(directory, 'x.bin'))).toEqual(Buffer.from(bytes));
    expect(await readdir(directory)).toEqual(['x.bin']);
  });

  it('replaces a symbolic link instead of writing through it', async () => {
    const { server, client, run, output } = await started();
    await using _ = server;
    await writeFile(join(directory, 'precious'), 'mine');
    await symlink(join(directory, 'precious'), join(directory, 'x.bin'));
    await saveOutput(client, run.id, output, join(directory, 'x.bin'));
    expect(await readFile(join(directory, 'precious'), 'utf8')).toBe('mine');
    expect(await readFile(join(directory, 'x.bin'))).toEqual(Buffer.from(bytes));
  });

  it('leaves nothing behind when the bytes are not those that were saved', async () => {
    const { server, client, run, output } = await started();
    await using _ = server;
    server.script.outputs = [{ path: 'x.bin', bytes: new Uint8Array(bytes.length) }];
    await expect(saveOutput(client, run.id, output, join(directory, 'x.bin'))).rejects.toBeInstanceOf(IntegrityError);
    expect(await readdir(directory)).toEqual([]);
  });
});

describe('uploadFile', () => {
  it('streams a file up', async () => {
    const { server, client, output } = await started();
    await using _ = server;
    await writeFile(join(directory, 'in'), bytes);
    const file = await uploadFile(client, join(directory, 'in'));
    expect(file).toMatchObject({ size_bytes: bytes.length, sha256: output.sha256 });
  });

  it('fails with what is wrong with the file', async () => {
    const { server, client } = await started();
    await using _ = server;
    await expect(uploadFile(client, join(directory, 'none'))).rejects.toThrow(/ENOENT/);
  });
});
