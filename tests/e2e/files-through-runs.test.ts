/** checks.md, "Files": inputs and outputs of runs, on real VMs. */
import { createHash, randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LocalStack } from './support/local-stack.ts';

let stack: LocalStack;
beforeAll(async () => {
  stack = await LocalStack.up();
}, 180_000);
afterAll(() => stack?.[Symbol.asyncDispose](), 60_000);

const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');
const KIB = 1024;
const MIB = 1024 * KIB;

describe('files', { timeout: 180_000 }, () => {
  it('of every awkward size arrive and return whole', async () => {
    const sizes = [
      0,
      1,
      4 * KIB,
      16 * KIB - 1,
      16 * KIB,
      16 * KIB + 1,
      64 * KIB - 1,
      64 * KIB,
      64 * KIB + 1,
      MIB,
      32 * MIB - 1,
      32 * MIB,
      32 * MIB + 1,
    ];
    const contents = sizes.map((size) => randomBytes(size));
    const uploads = await Promise.all(contents.map((content) => stack.client.files.upload(content)));
    const run = await stack.client.runs.create({
      shell: 'for f in in/*; do cp "$f" "out-$(basename "$f")"; done',
      files: uploads.map((upload, i) => ({ path: `in/${i}`, file_id: upload.id })),
      outputs: ['out-*'],
      wait: true,
    });
    expect(run.state).toBe('succeeded');
    for (const [i, content] of contents.entries()) {
      const output = run.outputs.find((each) => each.path === `out-${i}`);
      expect(output, `size ${sizes[i]}`).toMatchObject({ size_bytes: content.length, sha256: sha256(content) });
      expect(sha256(await stack.client.runs.outputs.download(run.id, output ?? ''))).toBe(sha256(content));
    }
  });

  it('keep awkward names: dash, spaces, newline, quotes, $(), 255 bytes, NFC and NFD, emoji', async () => {
    const names = [
      '-rf',
      ' lead and trail ',
      'quo\'te"s',
      '$(id)',
      '`id`',
      'a'.repeat(255),
      'é'.normalize('NFC'),
      'é'.normalize('NFD'),
      '🎉',
      '*',
      '\\',
      'x;y|z&',
      '#',
      '%2e%2e',
    ];
    const run = await stack.client.runs.create({
      shell: 'mkdir back; cp -- in/* back/; printf nl > "back/new\nline"',
      files: names.map((name) => ({ path: `in/${name}`, content: name })),
      outputs: ['back/*'],
      wait: true,
    });
    expect(run).toMatchObject({ state: 'succeeded', stderr: '' });
    const byPath = new Map(run.outputs.map((output) => [output.path, output]));
    for (const name of names) {
      const output = byPath.get(`back/${name}`);
      expect(output, name).toBeDefined();
      expect(new TextDecoder().decode(await stack.client.runs.outputs.download(run.id, output ?? ''))).toBe(name);
    }
    expect(byPath.has('back/new\nline') || run.skipped_outputs?.some((skipped) => skipped.reason === 'bad_name')).toBe(
      true,
    );
  });

  it('never leave the guest by links, devices, pipes or directories that are links', async () => {
    const run = await stack.client.runs.create({
      shell:
        'ln -s /etc/passwd link; ln -s /etc dirlink; mknod dev b 254 0; mkfifo pipe; ln link-target hard 2>/dev/null; echo ok > plain',
      outputs: ['**'],
      wait: true,
    });
    expect(run.outputs.filter((output) => output.kind === 'file').map((output) => output.path)).toEqual(['plain']);
    const reasons = Object.fromEntries((run.skipped_outputs ?? []).map((skipped) => [skipped.path, skipped.reason]));
    expect(reasons).toMatchObject({
      link: 'symlink',
      dirlink: 'symlink',
      dev: 'not_a_regular_file',
      pipe: 'not_a_regular_file',
    });
  });

  it('refuse outputs and inputs that would escape, naming the field', async () => {
    for (const body of [
      { shell: 'true', outputs: ['../etc/passwd'] },
      { shell: 'true', outputs: ['a/../../b'] },
      { shell: 'true', files: [{ path: '../x', content: '' }] },
      { shell: 'true', files: [{ path: 'a/../../x', content: '' }] },
      { shell: 'true', files: [{ path: 'a\0b', content: '' }] },
    ]) {
      const answer = await stack.post('/v1/runs', body);
      expect(answer, JSON.stringify(body)).toMatchObject({
        status: 400,
        body: { error: { code: 'invalid_argument', details: { field: expect.stringMatching(/^(outputs|files)/) } } },
      });
    }
  });

  it('that do not fit the disk fail the run clearly and leave nothing', async () => {
    const upload = await stack.client.files.upload(new Uint8Array(1025 * MIB));
    const run = await stack.client.runs.create({
      shell: 'echo ran',
      files: [{ path: 'huge', file_id: upload.id }],
      limits: { storage_gb: 1, ram_mb: 256 },
      wait: true,
    });
    expect(run).toMatchObject({
      state: 'failed',
      error: { code: 'input_failed', message: expect.stringContaining('huge') },
    });
    expect(run.stdout ?? '').toBe('');
    expect(await stack.vmmPids()).toEqual([]);
  });

  it('carry every byte value', async () => {
    const all = Uint8Array.from({ length: 256 }, (_, i) => i);
    const run = await stack.client.runs.create({
      shell: 'cp a b',
      files: [{ path: 'a', content_base64: Buffer.from(all).toString('base64') }],
      outputs: ['b'],
      wait: true,
    });
    expect(await stack.client.runs.outputs.download(run.id, 'b')).toEqual(all);
  });
});
