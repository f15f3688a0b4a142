/** As in production: orchestrator and host agent are processes of their own, over a real PostgreSQL. The same shape as localStack(). */
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { openSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { FuseClient } from '../packages/sdk/dist/index.js';
import { freePort, startPostgres } from '../packages/testing/dist/index.js';
import { userHome } from './local-stack.mjs';

/** @param {string} path */
const program = (path) => fileURLToPath(new URL(path, import.meta.url));

export async function separateStack() {
  const home = await mkdtemp(join(tmpdir(), 'fuse-bench-'));
  await mkdir(join(userHome, 'host', 'templates'), { recursive: true });
  await mkdir(join(home, 'host'));
  await symlink(join(userHome, 'assets'), join(home, 'assets'));
  await symlink(join(userHome, 'host', 'templates'), join(home, 'host', 'templates'));
  const postgres = await startPostgres();
  const database = await postgres.createDatabase();
  const [port, hostPort] = [await freePort(), await freePort()];
  const [token, hostToken] = [randomBytes(24).toString('hex'), randomBytes(24).toString('hex')];
  const [url, hostUrl] = [`http://127.0.0.1:${port}`, `http://127.0.0.1:${hostPort}`];
  const log = openSync(join(home, 'service.log'), 'a');
  const common = { ...process.env, FUSE_HOME: home, FUSE_LOG_LEVEL: 'warn' };
  /** @param {string} path @param {Record<string, string>} env */
  const start = (path, env) =>
    spawn(process.execPath, [program(path)], { env: { ...common, ...env }, stdio: ['ignore', log, log] });
  const children = [
    start('../apps/host-agent/bin/fuse-host-agent.js', {
      FUSE_HOST_LISTEN: `127.0.0.1:${hostPort}`,
      FUSE_HOST_TOKEN: hostToken,
    }),
    start('../apps/orchestrator/bin/fuse-orchestrator.js', {
      ORCH_LISTEN: `127.0.0.1:${port}`,
      ORCH_AUTH_TOKEN: token,
      DATABASE_URL: database.url,
    }),
  ];
  const deadline = Date.now() + 120_000;
  const up = async () =>
    (await fetch(`${url}/health`).catch(() => undefined))?.ok &&
    (await fetch(`${hostUrl}/v1/health`).catch(() => undefined))?.ok;
  while (!(await up())) {
    if (children.some((child) => child.exitCode !== null) || Date.now() > deadline)
      throw new Error(`the stack did not start:\n${await readFile(join(home, 'service.log'), 'utf8')}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const registered = await fetch(`${url}/v1/hosts`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${token}` },
    body: JSON.stringify({ id: 'bench', url: hostUrl, token: hostToken, backend: 'qemu', capacity: { vm_count: 100 } }),
  });
  if (!registered.ok) throw new Error(`the host was not registered: ${await registered.text()}`);
  return {
    pids: { 'host agent': children[0]?.pid ?? 0, orchestrator: children[1]?.pid ?? 0 },
    home,
    url,
    token,
    hostUrl,
    hostToken,
    client: new FuseClient({ baseUrl: url, token }),
    async [Symbol.asyncDispose ?? Symbol.for('nodejs.asyncDispose')]() {
      for (const child of children.toReversed()) {
        const gone = once(child, 'exit');
        child.kill('SIGTERM');
        await gone;
      }
      await postgres[Symbol.asyncDispose]();
      await rm(home, { recursive: true, force: true });
    },
  };
}
