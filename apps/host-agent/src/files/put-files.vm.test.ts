import { createHash, randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TestHost } from '../vms/test-host.ts';

let host: TestHost;
let vm: string;
beforeAll(async () => {
  host = await TestHost.open();
  vm = (await host.create()).id;
});
afterAll(() => host[Symbol.asyncDispose]());

const sum = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');
const put = (files: unknown[]) =>
  host.call<{ files: { path: string; size_bytes: number; sha256: string }[] }>('PUT', `/v1/vms/${vm}/files`, { files });

describe('files into a guest', () => {
  it('arrive whole, of any size, with the mode asked for', async () => {
    const sizes = [0, 1, 4_096, 16_383, 16_384, 16_385, 65_535, 65_537, 1_048_576, 33_554_433];
    const contents = sizes.map((size) => randomBytes(size));
    const files = await Promise.all(
      contents.map(async (bytes, index) => ({
        path: `/workspace/in/${index}`,
        object_key: await host.putObject(String(index), bytes),
        mode: '0640',
      })),
    );
    const written = (await put(files)).files;
    expect(written.map(({ size_bytes }) => size_bytes)).toEqual(sizes);
    expect(written.map(({ sha256 }) => sha256)).toEqual(contents.map(sum));
    const { stdout } = await host.shell(vm, 'cd /workspace/in && sha256sum $(ls | sort -n) && stat -c %a *');
    for (const bytes of contents) expect(stdout.toString()).toContain(sum(bytes));
    expect(stdout.toString()).toContain('640\n'.repeat(sizes.length));
  });

  it('come from the request itself too, under odd names', async () => {
    const names = ['-rf', 'a b', 'it\'s "q"', '$(reboot)', '😀', '\u00e9', 'e\u0301', 'x'.repeat(255)];
    await put(
      names.map((name) => ({ path: `/workspace/odd/${name}`, content_base64: Buffer.from(name).toString('base64') })),
    );
    const { stdout } = await host.shell(
      vm,
      'cd /workspace/odd; for f in *; do [ "$f" = "$(cat -- "./$f")" ] && echo same; done',
    );
    expect(stdout.toString()).toBe('same\n'.repeat(names.length));
  });

  it.each([
    [{ path: 'relative', content_base64: '' }, 'files.0.path'],
    [{ path: '/a/../b', content_base64: '' }, 'files.0.path'],
    [{ path: '/a//b', content_base64: '' }, 'files.0.path'],
    [{ path: '/a\0b', content_base64: '' }, 'files.0.path'],
    [{ path: `/${'x'.repeat(256)}`, content_base64: '' }, 'files.0.path'],
    [{ path: '/a' }, 'files.0'],
    [{ path: '/a', content_base64: '', object_key: 'k' }, 'files.0'],
  ])('are refused: %j', async (file, field) => {
    await expect(put([file])).rejects.toMatchObject({ status: 400, code: 'invalid_argument', details: { field } });
  });

  it('fail clearly when the object is missing or the sum is wrong, and when the disk is full', async () => {
    await expect(put([{ path: '/workspace/f', object_key: 'no/such' }])).rejects.toMatchObject({ status: 404 });
    const wrong = { path: '/workspace/f', content_base64: 'eA==', sha256: '0'.repeat(64) };
    await expect(put([wrong])).rejects.toMatchObject({ status: 400 });
    expect((await host.shell(vm, 'test -e /workspace/f')).exec.exit?.exit_code).toBe(1);
    await host.shell(vm, 'head -c 2000000000 /dev/zero > /workspace/fill');
    const key = await host.putObject('large', randomBytes(8_000_000));
    await expect(put([{ path: '/workspace/g', object_key: key }])).rejects.toMatchObject({ status: 409 });
    expect((await host.shell(vm, 'rm /workspace/fill; ls -A /workspace | grep -c fuse-')).stdout.toString()).toBe(
      '0\n',
    );
  });
});
