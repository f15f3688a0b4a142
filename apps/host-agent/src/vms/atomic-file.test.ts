import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { writeInPlace } from './atomic-file.ts';

let directory: string;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'fuse-atomic-'));
});
afterAll(() => rm(directory, { recursive: true, force: true }));

describe('a text that is written in place', () => {
  it('is read as it was written, after shorter and longer ones, of a page and more', async () => {
    const path = join(directory, 'text');
    for (const length of [10, 5, 4_094, 1, 4_095, 9_000, 20, 4_094, 9_000, 3]) {
      const value = 'ä'.repeat(length / 2);
      await writeInPlace(path, JSON.stringify(value));
      expect(JSON.parse(await readFile(path, 'utf8'))).toBe(value);
    }
  });

  it('leaves nothing of what was there before', async () => {
    const path = join(directory, 'secret');
    await writeInPlace(path, JSON.stringify({ request: { env: { KEY: 'hunter2' } } }));
    await writeInPlace(path, '{}');
    expect((await readFile(path, 'utf8')).trimEnd()).toBe('{}');
  });

  it('is whole whenever its writer is killed', { timeout: 60_000 }, async () => {
    const path = join(directory, 'killed');
    const script = join(directory, 'writer.mjs');
    const module = new URL('../../dist/vms/atomic-file.js', import.meta.url).href;
    await writeFile(
      script,
      `import { writeInPlace } from ${JSON.stringify(module)};
for (let i = 0; ; i += 1) {
  await writeInPlace(${JSON.stringify(path)}, JSON.stringify(Array.from({ length: 1 + ((i * 37) % 450) }, () => i)));
  if (i === 20) process.send('writing');
}`,
    );
    for (let i = 0; i < 20; i += 1) {
      const writer = fork(script);
      await once(writer, 'message');
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 20));
      writer.kill('SIGKILL');
      await once(writer, 'exit');
      const numbers = JSON.parse(await readFile(path, 'utf8')) as number[];
      expect(new Set(numbers).size).toBe(1);
      expect(numbers).toHaveLength(1 + (((numbers[0] ?? 0) * 37) % 450));
    }
  });
});
