import { spawnSync } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { projectPath } from '../setup/paths.mjs';
import { localStackRuns, ONLY_LOCAL_STACK_OPTIONS, onlyLocalStackVariables } from './local-stack.mjs';

/** @type {string} */
let home;
beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'fuse-start-'));
});
afterEach(() => rm(home, { recursive: true }));

it('the example runs on the local stack, whatever the user talks to otherwise', async () => {
  await mkdir(join(home, 'fuse'));
  const contexts = 'current_context: local\ncontexts:\n  - { name: local, base_url: "http://127.0.0.1:1", token: x }\n';
  await writeFile(join(home, 'fuse', 'config.yaml'), contexts);
  expect(await localStackRuns(home)).toBe(false);
  await writeFile(join(home, 'token'), 'local-token\n');
  const boot = (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim();
  const stat = await readFile('/proc/self/stat', 'utf8');
  const start_time = `${boot} ${stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]}`;
  await writeFile(
    join(home, 'local.json'),
    JSON.stringify({ pid: process.pid, start_time, url: 'http://127.0.0.1:9' }),
  );
  expect(await localStackRuns(home)).toBe(true);

  const elsewhere = { FUSE_URL: 'http://127.0.0.1:2', FUSE_TOKEN: 'x', FUSE_TENANT: 'acme', XDG_CONFIG_HOME: home };
  const current = (/** @type {string[]} */ options, /** @type {Record<string, undefined>} */ variables) => {
    const env = { ...process.env, ...elsewhere, FUSE_HOME: home, ...variables };
    const argv = ['apps/cli/bin/fuse.js', 'context', 'current', ...options, '-o', 'json'];
    return JSON.parse(spawnSync(process.execPath, argv, { cwd: projectPath, env, encoding: 'utf8' }).stdout);
  };
  expect(current([], {}).base_url).toBe('http://127.0.0.1:2');
  const example = current(ONLY_LOCAL_STACK_OPTIONS, onlyLocalStackVariables);
  expect(example).toEqual({ name: 'local', base_url: 'http://127.0.0.1:9', master: true, current: true });
});
