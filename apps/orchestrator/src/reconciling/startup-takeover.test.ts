/** A start with files, a script and a healthcheck whose process is killed at any step: it ends running or failed, its script ran once, and nothing is left. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { temporaryDirectory } from '@fuse/testing';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { callerOf, startTestOrchestrator, TEST_TOKEN, type TestOrchestrator } from '../test-orchestrator.ts';

const PROGRAM = fileURLToPath(new URL('../../dist/runs/crashing-orchestrator.js', import.meta.url));

interface Step {
  name: string;
  is: (call: { method: string; path: string }) => boolean;
}
const steps: Step[] = [
  { name: 'the VM is made', is: ({ method, path }) => method === 'PUT' && /^\/v1\/vms\/[^/]+$/.test(path) },
  { name: 'the files are put', is: ({ method, path }) => method === 'PUT' && path.endsWith('/files') },
  { name: 'the script is started', is: ({ method, path }) => method === 'PUT' && path.endsWith('/execs/startup') },
  { name: 'the script is waited for', is: ({ method, path }) => method === 'GET' && path.endsWith('/execs/startup') },
  { name: 'the healthcheck is put', is: ({ method, path }) => method === 'PUT' && path.endsWith('/healthcheck') },
];
const moments = steps.flatMap((step) => (['before', 'after'] as const).map((when) => ({ when, ...step })));

describe('a start whose process is killed', () => {
  let system: TestOrchestrator;
  let directory: Awaited<ReturnType<typeof temporaryDirectory>>;
  const children: ChildProcess[] = [];
  let number = 0;

  beforeAll(async () => {
    directory = await temporaryDirectory();
    system = await startTestOrchestrator('postgres', { config: { takeoverMs: 600 } });
  }, 60_000);
  afterAll(async () => {
    await system[Symbol.asyncDispose]();
    await directory[Symbol.asyncDispose]();
  });
  afterEach(async () => {
    for (const child of children.splice(0)) child.kill('SIGKILL');
    system.host.before = () => {};
    system.host.after = () => {};
    for (const { id } of (await system.call('GET', '/v1/environments')).body.environments)
      await system.call('DELETE', `/v1/environments/${id}`);
    await expect.poll(() => system.host.vms.size, { timeout: 20_000 }).toBe(0);
  });

  const stateOf = async (id: string) => {
    const { status, body } = await system.call('GET', `/v1/environments/${id}`);
    return status === 404 ? 'gone' : body.state;
  };

  /** Another process begins it; the first call of that step never comes back to it, and it is killed there. */
  async function killAt({ when, is }: (typeof moments)[number], body: object): Promise<string> {
    const child = spawn(process.execPath, [PROGRAM, JSON.stringify({ config: system.config, at: 'never' })], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    children.push(child);
    const lines = createInterface({ input: child.stdout as NonNullable<typeof child.stdout> }); // it is a pipe
    const url: string = (await lines[Symbol.asyncIterator]().next()).value;
    const reached = new Promise<void>((resolve) => {
      let seen = false;
      system.host[when] = async (call, response) => {
        if (seen || !is(call)) return;
        seen = true;
        resolve();
        await new Promise((closed) => response.once('close', closed));
        throw new Error('its caller is gone');
      };
    });
    const task_id = `killed-${++number}`;
    const created = callerOf(() => url)('POST', '/v1/environments', { task_id, ...body });
    created.catch(() => {}); // cut with its process
    await reached;
    const exited = once(child, 'exit');
    child.kill('SIGKILL');
    await exited;
    return `fuse-${task_id}`;
  }

  const request = (name: string) => ({
    files: { '/workspace/in.txt': Buffer.from('from the request').toString('base64') },
    startup_script: `cat in.txt >> ${name}; echo >> ${name}; echo 'from the script' > in.txt; sleep 0.3`,
    healthcheck: { exec: ['true'] },
  });

  it.each(moments)('$when $name, with nobody waiting for it, goes on elsewhere', async (moment) => {
    const counter = `${directory.path}/${moment.when} ${moment.name}`.replaceAll(' ', '-');
    const id = await killAt(moment, { ...request(counter), wait: false });
    await expect.poll(() => stateOf(id), { timeout: 20_000 }).toBe('running');
    expect(await readFile(counter, 'utf8')).toBe('from the request\n');
    const [vm] = system.host.vms.values();
    expect(system.host.vms.size).toBe(1);
    // What the script had changed is not put back.
    expect(await readFile(`${vm?.root}/workspace/in.txt`, 'utf8')).toBe('from the script\n');
    expect(vm?.healthcheck).toEqual({ exec: ['true'] });
  });

  it.each(moments)('$when $name, with somebody waiting for it, is given up', async (moment) => {
    const counter = `${directory.path}/waited ${moment.when} ${moment.name}`.replaceAll(' ', '-');
    const id = await killAt(moment, request(counter));
    await expect.poll(() => stateOf(id), { timeout: 20_000 }).toBe('gone');
    await expect.poll(() => system.host.vms.size, { timeout: 20_000 }).toBe(0);
  });

  it('that had failed is not begun again, but given up for the reason that it failed for', async () => {
    const isDestroyed = {
      when: 'after',
      name: '',
      is: ({ method }: { method: string }) => method === 'DELETE',
    } as const;
    const counter = `${directory.path}/failed`;
    const id = await killAt(isDestroyed, { wait: false, startup_script: `echo ran >> ${counter}; exit 5` });
    const response = await fetch(`${system.orchestrator.url}/v1/environments/${id}/events`, {
      headers: { authorization: `Bearer ${TEST_TOKEN}` },
    });
    expect(await response.text()).toMatch(/"state":"failed".*"error":"startup script: exec exit 5"/);
    expect(await readFile(counter, 'utf8')).toBe('ran\n');
    expect(system.host.vms.size).toBe(0);
  });

  it('goes on elsewhere at once when its process stops in good order', async () => {
    const first = await system.another({ listen: { host: '127.0.0.1', port: 0 }, takeoverMs: 60_000 });
    const counter = `${directory.path}/stopped`;
    const made = await callerOf(() => first.url)('POST', '/v1/environments', {
      task_id: 'stopped',
      wait: false,
      ...request(counter),
      startup_script: `echo ran >> ${counter}; sleep 1`,
    });
    expect(made.status).toBe(202);
    await expect.poll(() => readFile(counter, 'utf8').catch(() => ''), { timeout: 20_000 }).toBe('ran\n');
    await first[Symbol.asyncDispose]();
    expect(await stateOf(made.body.id)).toBe('provisioning');
    await expect.poll(() => stateOf(made.body.id), { timeout: 20_000 }).toBe('running');
    expect(await readFile(counter, 'utf8')).toBe('ran\n');
  });

  it('waits for a host that is away, and goes on when it is back', async () => {
    const made = await system.call('POST', '/v1/environments', {
      task_id: 'away',
      wait: false,
      startup_script: 'sleep 1; echo done',
    });
    await expect.poll(() => system.host.started.get('startup') ?? 0, { timeout: 20_000 }).toBeGreaterThan(0);
    await system.host.stop();
    await new Promise((resolve) => setTimeout(resolve, 500));
    await system.host.listen();
    await expect.poll(() => stateOf(made.body.id), { timeout: 30_000 }).toBe('running');
  });
});
