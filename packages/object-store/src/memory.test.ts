import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { startS3Server, temporaryDirectory } from '@fuse/testing';
import { describe, expect, it } from 'vitest';
import type { ObjectStoreConfig } from './config.ts';

const run = promisify(execFile);
const SIZE_MIB = 256;
const built = (file: string) => JSON.stringify(new URL(`../dist/${file}`, import.meta.url).href);

/** A process of its own puts and gets an object; the growth of its largest resident size over that of an idle store. */
async function growthMiB(config: ObjectStoreConfig): Promise<number> {
  const script = `
    const { openObjectStore } = await import(${built('index.js')});
    const { drain, patternStream } = await import(${built('pattern.fixture.js')});
    const store = await openObjectStore(${JSON.stringify(config)});
    await store.check();
    const idle = process.resourceUsage().maxRSS;
    await store.put('big', patternStream(${SIZE_MIB * 1024 * 1024}));
    const { info, body } = await store.get('big');
    const read = await drain(body);
    if (read.error !== undefined || read.sha256 !== info.sha256) throw read.error ?? new Error('other bytes');
    console.log((process.resourceUsage().maxRSS - idle) / 1024);
    await store[Symbol.asyncDispose]();`;
  const { stdout } = await run(process.execPath, ['--max-old-space-size=48', '--input-type=module', '-e', script]);
  return Number(stdout);
}

describe(`memory of a put and a get of ${SIZE_MIB} MiB`, () => {
  it('stays flat with files', async () => {
    const directory = await temporaryDirectory();
    expect(await growthMiB({ kind: 'file', directory: directory.path })).toBeLessThan(96);
    await directory[Symbol.asyncDispose]();
  }, 60_000);

  it('stays at the parts on their way with S3', async () => {
    const server = await startS3Server();
    expect(await growthMiB(server.config)).toBeLessThan(192);
    await server[Symbol.asyncDispose]();
  }, 600_000);
});
