/**
 * A local stack for a benchmark: the real process with a FUSE_HOME of its own that shares assets and templates with the user's.
 * `await using stack = await localStack()`: {client, hostUrl, hostToken, home}.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, openSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, symlink } from 'node:fs/promises';
import { cpus, homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { FuseClient } from '../packages/sdk/dist/index.js';
import { freePort } from '../packages/testing/dist/index.js';

const program = fileURLToPath(new URL('../apps/local/dist/main.js', import.meta.url));
export const userHome = process.env.FUSE_HOME || join(homedir(), '.fuse');

/** @param {Record<string, string>} variables further configuration, such as FUSE_HOST_CPUS */
export async function localStack(variables = {}) {
  const home = await mkdtemp(join(tmpdir(), 'fuse-bench-'));
  await mkdir(join(userHome, 'host', 'templates'), { recursive: true });
  await mkdir(join(home, 'host'));
  await symlink(join(userHome, 'assets'), join(home, 'assets'));
  await symlink(join(userHome, 'host', 'templates'), join(home, 'host', 'templates'));
  const port = await freePort();
  const log = openSync(join(home, 'service.log'), 'a');
  // No template is made beside what is measured.
  const quiet = { FUSE_LOG_LEVEL: 'warn', FUSE_TEMPLATES: 'none' };
  const env = { ...process.env, ...quiet, ...variables, FUSE_HOME: home, FUSE_PORT: String(port) };
  // Such as --cpu-prof.
  const nodeArguments = (process.env.FUSE_BENCH_NODE_ARGUMENTS ?? '').split(' ').filter((each) => each !== '');
  const child = spawn(process.execPath, [...nodeArguments, program], { env, stdio: ['ignore', log, log] });
  const url = `http://127.0.0.1:${port}`;
  const deadline = Date.now() + 120_000;
  while (!existsSync(join(home, 'local.json')) || !(await fetch(`${url}/ready`).catch(() => undefined))?.ok) {
    if (child.exitCode !== null || Date.now() > deadline)
      throw new Error(`the local stack did not start:\n${await readFile(join(home, 'service.log'), 'utf8')}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const token = (await readFile(join(home, 'token'), 'utf8')).trim();
  const { host_url: hostUrl, host_token: hostToken } = JSON.parse(await readFile(join(home, 'local.json'), 'utf8'));
  return {
    pids: { service: child.pid ?? 0 },
    home,
    url,
    token,
    hostUrl,
    hostToken,
    client: new FuseClient({ baseUrl: url, token }),
    async [Symbol.asyncDispose ?? Symbol.for('nodejs.asyncDispose')]() {
      const gone = once(child, 'exit');
      child.kill('SIGINT');
      await gone;
      await rm(home, { recursive: true, force: true });
    },
  };
}

/** @param {string} title @param {Record<string, number[]>} series milliseconds by name */
export function report(title, series) {
  const n = Math.max(...Object.values(series).map((each) => each.length));
  process.stdout.write(`${title}; N=${n}; ${cpus().length} x ${cpus()[0]?.model.trim()}\n`);
  const width = Math.max(...Object.keys(series).map((name) => name.length));
  process.stdout.write(`${''.padEnd(width)}      p50      p95      p99      min\n`);
  for (const [name, values] of Object.entries(series)) {
    const digits = quantile(values, 0.5) < 10 ? 2 : 1;
    const cells = [0.5, 0.95, 0.99, 0].map((q) => quantile(values, q).toFixed(digits).padStart(9));
    process.stdout.write(`${name.padEnd(width)}${cells.join('')} ms\n`);
  }
}

/** @param {number[]} values @param {number} q */
export function quantile(values, q) {
  const sorted = values.toSorted((one, other) => one - other);
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(q * sorted.length) - 1))] ?? Number.NaN;
}

/** @template T @param {() => Promise<T>} work @returns {Promise<{ms: number, value: T}>} */
export async function timed(work) {
  const from = performance.now();
  const value = await work();
  return { ms: performance.now() - from, value };
}
