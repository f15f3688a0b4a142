/**
 * What a template saves and costs: a cold boot to its first command, and the making of a template, beside a start from one.
 *
 *   node bench/cold-start.mjs [N=5]
 */
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loadAssets } from '../apps/host-agent/dist/images/assets.js';
import { Templates } from '../apps/host-agent/dist/templates/templates.js';
import { openQemuDriver } from '../apps/host-agent/dist/vmm/qemu/qemu-driver.js';
import { createLogger } from '../packages/runtime/dist/index.js';
import { localStack, report, timed, userHome } from './local-stack.mjs';

const n = Number(process.argv[2] ?? 5);
/** @type {Record<string, number[]>} */
const series = { 'cold boot -> command': [], 'template -> command': [], 'making a template': [] };
const shape = { cpus: 1, ram_mb: 256, storage_gb: 2 };

const stack = await localStack();
try {
  /** @param {'cold' | 'auto'} start */
  const first = async (start) => {
    const id = `bench-${randomBytes(4).toString('hex')}`;
    const path = `${stack.hostUrl}/v1/vms/${id}`;
    const headers = { Authorization: `Bearer ${stack.hostToken}`, 'Content-Type': 'application/json' };
    /** @param {string} url @param {string} method @param {unknown} [body] */
    const call = async (url, method, body) => {
      const response = await fetch(url, {
        method,
        headers: body === undefined ? { Authorization: headers.Authorization } : headers,
        body: body === undefined ? null : JSON.stringify(body),
      });
      if (!response.ok) throw new Error(`${method} ${url}: ${response.status} ${await response.text()}`);
    };
    const { ms } = await timed(async () => {
      await call(path, 'PUT', { image: 'base', shape, tag: 'bench', hostname: id, start });
      await call(`${path}/execs/one`, 'PUT', { argv: ['true'], timeout_ms: 60_000, max_log_bytes: 65_536 });
      await call(`${path}/execs/one?wait_ms=60000`, 'GET');
    });
    await call(path, 'DELETE');
    return ms;
  };
  await first('auto');
  for (let round = 0; round < n; round++) {
    series['cold boot -> command']?.push(await first('cold'));
    series['template -> command']?.push(await first('auto'));
  }
} finally {
  await stack[Symbol.asyncDispose]();
}

const assets = await loadAssets(join(userHome, 'assets', 'manifest.json'));
const log = createLogger({ name: 'bench', level: 'warn' });
const driver = await openQemuDriver({ dataDirectory: join(userHome, 'host'), kernelPath: assets.kernel.path, log });
const [image] = assets.images;
if (image === undefined) throw new Error('there is no image');
for (let round = 0; round < Math.min(n, 3); round++) {
  const directory = await mkdtemp(join(tmpdir(), 'fuse-bench-templates-'));
  try {
    const templates = new Templates({ directory, driver, assets, log });
    series['making a template']?.push((await timed(() => templates.ensure(image, shape))).ms);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}
report(`cold start, ${shape.ram_mb} MiB, ${driver.accelerator}`, series);
