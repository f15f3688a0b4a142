/**
 * The control plane alone: one orchestrator process over PostgreSQL with 10,000 environments, on ten hosts that answer at once and start nothing.
 *
 *   node bench/control-plane.mjs [--n 10000] [--seconds 10] [--callers 16] [--creates 200] [--streams 1000] [--rounds 10] [--explain]
 *
 * Rows are copies of one environment a host, inserted into the database. What is asked goes over HTTP, from this process: it, the hosts' process, the orchestrator
 * and PostgreSQL share the machine's CPUs. PostgreSQL runs without fsync. Creates are `wait: false`: the time to the 202 is that of the transaction that admits.
 * Fan-out is from sending a DELETE to the arrival of its `destroying` on each stream.
 */
import { fork, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { openSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import pg from 'pg';
import { TestHost } from '../apps/orchestrator/dist/hosts/test-host.js';
import { FuseClient } from '../packages/sdk/dist/index.js';
import { freePort, startPostgres } from '../packages/testing/dist/index.js';
import { quantile, report, timed } from './local-stack.mjs';

const HOSTS = 10;
const AS_HOSTS = 'hosts';
/** Of /proc/PID/stat. */
const CLOCK_TICK_MS = 10;

if (process.argv[2] === AS_HOSTS) await beHosts();
else await measure();

/** In a process of its own: hosts, and VMs that are told and not started. */
async function beHosts() {
  const capacity = {
    cpus: 1_000_000,
    ram_mb: 1_000_000_000,
    storage_gb: 1_000_000,
    free_storage_gb: 1_000_000,
    vm_count: 1_000_000,
  };
  const hosts = await Promise.all(Array.from({ length: HOSTS }, () => TestHost.start({ capacity })));
  process.on('message', (/** @type {{host: number, vmIds: string[]}} */ { host: index, vmIds }) => {
    const vms = hosts[index]?.vms;
    const [seed] = vms?.values() ?? [];
    if (vms === undefined || seed === undefined) throw new Error(`host ${index} has no VM to copy`);
    for (const id of vmIds) vms.set(id, { ...seed, execs: new Map(), vm: { ...seed.vm, id } });
    process.send?.('filled');
  });
  process.send?.(hosts.map(({ url, token }) => ({ url, token })));
  process.on('disconnect', () => process.exit());
}

async function measure() {
  const { values } = parseArgs({
    options: {
      n: { type: 'string', default: '10000' },
      seconds: { type: 'string', default: '10' },
      callers: { type: 'string', default: '16' },
      creates: { type: 'string', default: '200' },
      streams: { type: 'string', default: '1000' },
      rounds: { type: 'string', default: '10' },
      explain: { type: 'boolean', default: false },
    },
  });
  const [n, seconds, callers, creates, streams, rounds] = [
    values.n,
    values.seconds,
    values.callers,
    values.creates,
    values.streams,
    values.rounds,
  ].map(Number);
  const stack = await start();
  try {
    const ids = await fill(stack, n ?? 0);
    const { key } = await stack.client.apiKeys.create({ label: 'bench', scopes: ['environments:read'] });
    const some = () => ids[Math.floor(Math.random() * ids.length)] ?? '';
    const load = { seconds: seconds ?? 0, callers: callers ?? 0 };
    const cursor = (/** @type {string} */ id) => Buffer.from(JSON.stringify({ id })).toString('base64url');
    /** @type {[string, string, () => string][]} */
    const reads = [
      ['get, master token', stack.token, () => `/v1/environments/${some()}`],
      ['get, API key', key, () => `/v1/environments/${some()}`],
      ['list of 50, API key', key, () => `/v1/environments?limit=50&cursor=${cursor(some())}`],
      ['list of 50 by label, API key', key, () => '/v1/environments?limit=50&label=group%3D7'],
    ];
    process.stdout.write(`${ids.length} environments, ${callers} callers\n`);
    for (const [name, token, path] of reads) {
      await reading(stack, { ...load, seconds: 1 }, token, path);
      const { value, cpuMs } = await withCpu(stack, () => reading(stack, load, token, path));
      const { ms, perSecond } = value;
      const each = (cpuMs / ms.length).toFixed(2);
      report(`${name}: ${perSecond.toFixed(0)} requests/s, ${each} ms of processor time each`, { [name]: ms });
    }
    await admits(stack, creates ?? 0, callers ?? 0);
    await fanOut(stack, 'of all environments', streams ?? 0, ids.splice(0, rounds), () => '/v1/events');
    await fanOut(
      stack,
      'of one environment',
      streams ?? 0,
      ids.splice(0, rounds),
      (id) => `/v1/environments/${id}/events`,
    );
    if (values.explain) await explain(stack, some());
  } finally {
    await stack.stop();
  }
}

/** @typedef {Awaited<ReturnType<typeof start>>} Stack */

/**
 * What the orchestrator's process spends meanwhile, which other work on the machine changes less than the time that passes.
 *
 * @template T @param {Stack} stack @param {() => Promise<T>} work @returns {Promise<{value: T, cpuMs: number}>}
 */
async function withCpu({ pid }, work) {
  const spent = async () => {
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return (Number(fields[11]) + Number(fields[12])) * CLOCK_TICK_MS;
  };
  const before = await spent();
  const value = await work();
  return { value, cpuMs: (await spent()) - before };
}

async function start() {
  const home = await mkdtemp(join(tmpdir(), 'fuse-bench-'));
  const postgres = await startPostgres();
  const { url: databaseUrl } = await postgres.createDatabase();
  const port = await freePort();
  const token = randomBytes(24).toString('hex');
  const url = `http://127.0.0.1:${port}`;
  const log = openSync(join(home, 'service.log'), 'a');
  const hosts = fork(fileURLToPath(import.meta.url), [AS_HOSTS]);
  const [addresses] = await once(hosts, 'message');
  const orchestrator = spawn(
    process.execPath,
    [fileURLToPath(new URL('../apps/orchestrator/bin/fuse-orchestrator.js', import.meta.url))],
    {
      env: {
        ...process.env,
        FUSE_HOME: home,
        FUSE_LOG_LEVEL: 'warn',
        ORCH_LISTEN: `127.0.0.1:${port}`,
        ORCH_AUTH_TOKEN: token,
        DATABASE_URL: databaseUrl,
        TOKEN_ENCRYPTION_KEY: randomBytes(32).toString('hex'),
      },
      stdio: ['ignore', log, log],
    },
  );
  const deadline = Date.now() + 60_000;
  while (!(await fetch(`${url}/health`).catch(() => undefined))?.ok) {
    if (orchestrator.exitCode !== null || Date.now() > deadline)
      throw new Error(`the orchestrator did not start:\n${await readFile(join(home, 'service.log'), 'utf8')}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const client = new FuseClient({ baseUrl: url, token });
  for (const [index, host] of addresses.entries()) await client.hosts.register({ id: `bench-${index}`, ...host });
  return {
    url,
    token,
    databaseUrl,
    hosts,
    client,
    pid: orchestrator.pid,
    async stop() {
      const gone = once(orchestrator, 'exit');
      orchestrator.kill('SIGTERM');
      await gone;
      hosts.disconnect();
      await postgres[Symbol.asyncDispose]();
      await rm(home, { recursive: true, force: true });
    },
  };
}

/** @param {Stack} stack @param {number} n @returns {Promise<string[]>} their ids */
async function fill({ client, databaseUrl, hosts }, n) {
  const database = new pg.Client({ connectionString: databaseUrl });
  await database.connect();
  /** @type {string[]} */
  const ids = [];
  for (let host = 0; host < HOSTS; host++) {
    const spec = { host_id: `bench-${host}`, cpus: 1, ram_mb: 512, storage_gb: 2 };
    const seed = await client.environments.create({ task_id: `seed-${host}`, spec, labels: { group: 'seed' } });
    const { rows } = await database.query(
      `insert into environments
       select (jsonb_populate_record(null::environments, to_jsonb(seed) || jsonb_build_object(
         'uid', gen_random_uuid(), 'id', 'fuse-' || name, 'task_id', name, 'vm_id', 'vm-' || name,
         'labels', jsonb_build_object('group', (n % 100)::text),
         'token_hash', null, 'token_sealed', null, 'expires_at', now() + interval '1 day',
         'created_at', now() - interval '1 hour' - n * interval '1 millisecond'))).*
       from environments seed, generate_series(1, $3::int) n, lateral (select 'bench-' || $2 || '-' || n as name) named
       where seed.id = $1 and seed.state = 'running'
       returning id, vm_id`,
      [seed.id, String(host), Math.ceil(n / HOSTS)],
    );
    hosts.send({ host, vmIds: rows.map(({ vm_id }) => vm_id) });
    await once(hosts, 'message');
    ids.push(...rows.map(({ id }) => id));
  }
  await database.query('analyze');
  await database.end();
  return ids;
}

/** @param {Stack} stack @param {{seconds: number, callers: number}} load @param {string} token @param {() => string} path */
async function reading({ url }, { seconds, callers }, token, path) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: callers });
  const until = performance.now() + seconds * 1_000;
  /** @type {number[]} */
  const ms = [];
  const from = performance.now();
  await Promise.all(
    Array.from({ length: callers }, async () => {
      while (performance.now() < until) ms.push((await timed(() => get(`${url}${path()}`, token, agent))).ms);
    }),
  );
  const perSecond = ms.length / ((performance.now() - from) / 1_000);
  agent.destroy();
  return { ms, perSecond };
}

/** @param {string} url @param {string} token @param {http.Agent} agent @returns {Promise<void>} */
function get(url, token, agent) {
  return new Promise((resolve, reject) => {
    http
      .get(url, { agent, headers: { authorization: `Bearer ${token}` } }, (response) => {
        response.resume();
        if (response.statusCode !== 200) reject(new Error(`${url}: ${response.statusCode}`));
        response.once('end', resolve);
        response.once('error', reject);
      })
      .once('error', reject);
  });
}

/** @param {Stack} stack @param {number} creates @param {number} callers */
async function admits(stack, creates, callers) {
  const { client } = stack;
  /** @type {number[]} */
  const ms = [];
  let next = 0;
  const from = performance.now();
  const caller = async () => {
    while (next < creates) {
      const task_id = `admitted-${next++}`;
      ms.push((await timed(() => client.environments.create({ task_id, wait: false }))).ms);
    }
  };
  const { cpuMs } = await withCpu(stack, () => Promise.all(Array.from({ length: callers }, caller)));
  const perSecond = creates / ((performance.now() - from) / 1_000);
  const each = (cpuMs / creates).toFixed(2);
  const title = `create, wait: false: ${perSecond.toFixed(0)} admits/s, ${each} ms of processor time each (their starts go on beside them)`;
  report(title, { 'create to 202': ms });
  // Until all of them run, so that what comes next is not measured beside their starts.
  for (let task = 0; task < creates; task++)
    for await (const { state } of await client.environments.events(`fuse-admitted-${task}`))
      if (state === 'running') break;
}

/**
 * @param {Stack} stack @param {string} what @param {number} streams @param {string[]} ids of environments, each destroyed in its round
 * @param {(id: string) => string} path
 */
async function fanOut({ url, token, client }, what, streams, ids, path) {
  /** @type {{first: number[], last: number[]}} */
  const series = { first: [], last: [] };
  for (const id of ids) {
    const followers = Array.from({ length: streams }, () => follow(`${url}${path(id)}`, token, id));
    await Promise.all(followers.map(({ open }) => open));
    const sentAt = performance.now();
    const destroyed = client.environments.destroy(id);
    const arrivals = await Promise.all(followers.map(({ destroying }) => destroying));
    await destroyed;
    for (const { close } of followers) close();
    const ms = arrivals.map((at) => at - sentAt);
    series.first.push(quantile(ms, 0));
    series.last.push(quantile(ms, 1));
  }
  report(`fan-out to ${streams} streams ${what}`, {
    'DELETE to the first stream': series.first,
    'DELETE to the last stream': series.last,
  });
}

/** @param {string} url @param {string} token @param {string} id */
function follow(url, token, id) {
  /** @type {http.ClientRequest | undefined} */
  let request;
  /** @type {(at: number) => void} */
  let arrived = () => {};
  /** @type {(cause: Error) => void} */
  let broke = () => {};
  const destroying = new Promise((/** @type {(at: number) => void} */ resolve, reject) => {
    arrived = resolve;
    broke = reject;
  });
  destroying.catch(() => {}); // told where it is awaited
  const open = new Promise((/** @type {(value: void) => void} */ resolve, reject) => {
    request = http.get(url, { agent: false, headers: { authorization: `Bearer ${token}` } }, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (/** @type {string} */ chunk) => {
        resolve();
        text += chunk;
        const frames = text.split('\n\n');
        text = frames.pop() ?? '';
        if (frames.some((frame) => frame.includes(`"${id}"`) && frame.includes('"destroying"')))
          arrived(performance.now());
      });
      response.once('close', () => broke(new Error(`${url} ended`)));
    });
    request.once('error', (/** @type {Error} */ error) => {
      reject(error);
      broke(error);
    });
  });
  return { open, destroying, close: () => request?.destroy() };
}

/** What PostgreSQL does for a get, for a list, and for the sums that an admission looks at. @param {Stack} stack @param {string} id */
async function explain({ databaseUrl }, id) {
  const live = `tenant_id = 'default' and state not in ('destroyed', 'failed')`;
  const database = new pg.Client({ connectionString: databaseUrl });
  await database.connect();
  for (const [name, query] of [
    ['get', `select * from environments where ${live} and id = '${id}'`],
    ['list', `select * from environments where ${live} and id > '${id}' order by id limit 51`],
    ['list by label', `select * from environments where ${live} and labels @> '{"group":"7"}' order by id limit 51`],
    [
      'reserved on each host',
      'select host_id, sum(cpus), sum(ram_mb), sum(storage_gb), count(*) from reservations group by host_id',
    ],
  ]) {
    const { rows } = await database.query(`explain (analyze, buffers) ${query}`);
    process.stdout.write(`\n${name}\n${rows.map((row) => `  ${row['QUERY PLAN']}\n`).join('')}`);
  }
  await database.end();
}
