import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { newId } from '@fuse/runtime';
import { expect, it } from 'vitest';
import { lock, tryLock } from './process-lock.ts';

it('is held by one at a time, and the next gets it when it is let go', async () => {
  const name = newId('lock');
  const first = await tryLock(name);
  expect(await tryLock(name)).toBeUndefined();
  expect(await tryLock(newId('lock'))).toBeDefined();
  const second = lock(name);
  await first?.[Symbol.asyncDispose]();
  await (await second)[Symbol.asyncDispose]();
});

it('stops waiting when it is aborted', async () => {
  const name = newId('lock');
  const held = await lock(name);
  await expect(lock(name, AbortSignal.timeout(50))).rejects.toThrow();
  await held[Symbol.asyncDispose]();
});

it('is free again when the process that had it is killed', async () => {
  const name = newId('lock');
  const module = JSON.stringify(new URL('../../dist/templates/process-lock.js', import.meta.url).href);
  const script = `import { lock } from ${module}; await lock(${JSON.stringify(name)}); console.log('held'); setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await once(child.stdout, 'data');
  expect(await tryLock(name)).toBeUndefined();
  child.kill('SIGKILL');
  await (await lock(name, AbortSignal.timeout(5_000)))[Symbol.asyncDispose]();
});
