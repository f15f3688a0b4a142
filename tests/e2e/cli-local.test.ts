/** `fuse local`: the stack of one machine through its whole life, crashes included. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { access, cp, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { freePort, runningProcesses } from '@fuse/testing';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { fuse as runFuse, startFuse } from './support/fuse-cli.ts';

const userHome = process.env.FUSE_HOME ?? join(homedir(), '.fuse');
/** A home that was up once: making its database takes ten times as long as copying it. */
let seed: string;
let home: string;
let port: number;
beforeAll(async () => {
  await newHome();
  expect((await fuse(['local', 'up'])).code).toBe(0);
  expect((await fuse(['local', 'down'])).code).toBe(0);
  seed = home;
}, 240_000);
afterAll(() => rm(seed, { recursive: true }));
beforeEach(async () => {
  await newHome();
  await cp(join(seed, 'postgres'), join(home, 'postgres'), { recursive: true });
  await cp(join(seed, 'sealing-key'), join(home, 'sealing-key')); // of that database
  await cp(join(seed, 'host', 'kvm-probe.json'), join(home, 'host', 'kvm-probe.json')).catch(() => {}); // where there was nothing to probe, there is none
});
afterEach(async () => {
  await fuse(['local', 'down']);
  const left = await processesOfHome();
  await rm(home, { recursive: true });
  expect(left).toEqual([]);
}, 120_000);

/** Shares what is immutable, or rebuilt when damaged, with the user's. */
async function newHome(): Promise<void> {
  home = await mkdtemp(join(tmpdir(), 'fuse-e2e-local-'));
  port = await freePort();
  await mkdir(join(userHome, 'host', 'templates'), { recursive: true });
  await mkdir(join(home, 'host'));
  await symlink(join(userHome, 'assets'), join(home, 'assets'));
  await symlink(join(userHome, 'host', 'templates'), join(home, 'host', 'templates'));
}

const env = () => ({ FUSE_HOME: home, FUSE_PORT: String(port), XDG_CONFIG_HOME: join(home, 'config') });
const fuse = (args: string[]) => runFuse(args, { env: env(), cwd: tmpdir() });
const exec = (...argv: string[]) => fuse(['environment', 'exec', 'fuse-story', '--', ...argv]);

const processesOfHome = async () =>
  (await runningProcesses()).filter((each) => each.command.includes(home)).map((each) => each.command);

/** VMMs, and nothing else. */
const vmms = async () => (await processesOfHome()).filter((command) => command.includes('qemu-system'));

interface Local {
  pid: number;
  url: string;
}
const localFile = async (): Promise<Local> => JSON.parse(await readFile(join(home, 'local.json'), 'utf8'));

async function end(signal: 'SIGKILL' | 'SIGTERM'): Promise<void> {
  const { pid } = await localFile();
  process.kill(pid, signal);
  while ((await runningProcesses()).some((each) => each.pid === pid)) await delay(20);
}

const exists = (path: string) =>
  access(path).then(
    () => true,
    () => false,
  );

describe('fuse local', { timeout: 240_000 }, () => {
  it('goes up once however often it is asked, shows itself, and goes down without a trace', async () => {
    const [first, second] = await Promise.all([fuse(['local', 'up']), fuse(['local', 'up'])]);
    expect([first.code, second.code, first.stderr + second.stderr]).toEqual([
      0,
      0,
      expect.stringContaining('is up already'),
    ]);
    const { pid, url } = await localFile();
    expect(url).toBe(`http://127.0.0.1:${port}`);
    expect((await fuse(['local', 'up'])).stderr).toContain(`fuse is up already at ${url} (pid ${pid})`);

    const status = JSON.parse((await fuse(['local', 'status', '-o', 'json'])).stdout.toString());
    expect(status).toMatchObject({ state: 'up', url, pid, environments: 0, host: { used: { vm_count: 0 } } });
    expect(status.host.capacity.cpus).toBeGreaterThan(0);
    const text = await fuse(['local', 'status']);
    expect([text.code, text.stdout.toString()]).toEqual([0, expect.stringMatching(/^state +up\n/)]);
    if (status.host.accelerator === 'tcg') expect(text.stderr).toContain('no security boundary');
    expect((await fuse(['local', 'logs', '-n', '5000'])).stdout.toString()).toContain('orchestrator ready');

    const run = await fuse(['run', '--quiet', '--', 'echo', 'by the local stack']);
    expect([run.code, run.stdout.toString()]).toEqual([0, 'by the local stack\n']);

    expect((await fuse(['env', 'create', '--task-id', 'story'])).code).toBe(0);
    const sleeper = startFuse(['run', '--', 'sh', '-c', 'echo started; sleep 600'], { env: env() });
    await sleeper.says('started');
    expect(await vmms()).toHaveLength(2);
    const down = await fuse(['local', 'down']);
    expect([down.code, down.stderr]).toEqual([0, expect.stringContaining('fuse is down; no VM is left')]);
    const cancelled = await sleeper.outcome;
    expect([cancelled.code, cancelled.stderr]).toEqual([130, expect.stringContaining('cancelled')]);
    expect(await processesOfHome()).toEqual([]);
    expect(await readdir(join(home, 'host', 'vms'))).toEqual([]);
    expect(await exists(join(home, 'local.json'))).toBe(false);

    const again = await fuse(['local', 'down']);
    expect([again.code, again.stderr]).toEqual([0, 'fuse is not up\n']);
    const off = await fuse(['local', 'status', '--json']);
    expect([off.code, JSON.parse(off.stdout.toString())]).toEqual([1, { state: 'down' }]);
  });

  it('takes over the VMs of a service that was killed, or stopped for a restart', async () => {
    await fuse(['local', 'up']);
    await fuse(['env', 'create', '--task-id', 'story']);
    await exec('sh', '-c', 'echo kept > /dev/shm/here');
    const [vmm] = await vmms();
    for (const signal of ['SIGKILL', 'SIGTERM'] as const) {
      await end(signal);
      expect(await vmms()).toEqual([vmm]);
      expect((await fuse(['env', 'list'])).stderr).toContain('no active context');
      const up = await fuse(['local', 'up']);
      expect([up.code, up.stderr.includes('ended without being stopped')]).toEqual([0, signal === 'SIGKILL']);
      const kept = await exec('cat', '/dev/shm/here');
      expect([kept.code, kept.stdout.toString()]).toEqual([0, 'kept\n']);
    }
    expect(await vmms()).toEqual([vmm]);
  });

  it('goes on with a run, and with what follows it, when the service is killed and comes back', async () => {
    await fuse(['local', 'up']);
    const script = 'for i in $(seq 1 200); do echo $i; sleep 0.1; done; exit 9';
    const run = startFuse(['run', '--', 'sh', '-c', script], { env: env() });
    await run.says('20\n');
    await end('SIGKILL');
    expect((await fuse(['local', 'up'])).code).toBe(0);
    const { code, stdout } = await run.outcome;
    const numbers = Array.from({ length: 200 }, (_, index) => `${index + 1}\n`).join('');
    expect([code, stdout.toString()]).toEqual([9, numbers]);
  });

  it('clears away what a killed service left', async () => {
    await fuse(['local', 'up']);
    await fuse(['env', 'create', '--task-id', 'story']);
    await end('SIGKILL');
    expect(JSON.parse((await fuse(['local', 'status', '-o', 'json'])).stdout.toString())).toEqual({
      state: 'down',
      vms_left: 1,
    });
    const down = await fuse(['local', 'down']);
    expect([down.code, down.stderr]).toEqual([0, expect.stringContaining('no VM is left')]);
    expect(await processesOfHome()).toEqual([]);
    expect(await readdir(join(home, 'host', 'vms'))).toEqual([]);
    // The next stack knows from its first answer on that it is gone.
    await fuse(['local', 'up']);
    const { environments } = JSON.parse((await fuse(['env', 'list', '-o', 'json'])).stdout.toString());
    expect(environments).toEqual([]);
  });

  it('is not fooled by a pid that now belongs to somebody else', async () => {
    const stale = {
      pid: process.pid,
      start_time: 'an-earlier-boot 1',
      url: 'http://127.0.0.1:1',
      host_url: 'http://127.0.0.1:1',
      host_token: 'x',
      started_at: '',
    };
    await writeFile(join(home, 'local.json'), JSON.stringify(stale));
    expect((await fuse(['local', 'status', '-o', 'json'])).stdout.toString()).toBe('{\n  "state": "down"\n}\n');
    const up = await fuse(['local', 'up']);
    expect([up.code, (await localFile()).pid === process.pid]).toEqual([0, false]);
    const down = await fuse(['local', 'down']);
    expect(down.code).toBe(0);
  });

  it('in the foreground goes down with Ctrl-C', async () => {
    const up = startFuse(['local', 'up', '--foreground'], { env: env() });
    await up.says(`fuse is up at http://127.0.0.1:${port}`);
    await fuse(['env', 'create', '--task-id', 'story']);
    expect(await vmms()).toHaveLength(1);
    process.kill(-(up.child.pid ?? Number.NaN), 'SIGINT'); // as the terminal does: the whole group
    const { code, stderr } = await up.outcome;
    expect([code, stderr]).toEqual([0, expect.stringContaining('destroying VMs')]);
    expect(await processesOfHome()).toEqual([]);
  });

  it('stops again when it is interrupted while it starts', async () => {
    const up = startFuse(['local', 'up'], { env: env() });
    await up.says('starting; log: ');
    process.kill(-(up.child.pid ?? Number.NaN), 'SIGINT');
    const { code, stderr } = await up.outcome;
    expect([code, stderr]).toEqual([1, expect.stringContaining('interrupted: the local stack was stopped again')]);
    expect(await processesOfHome()).toEqual([]);
  });

  it('follows its log until nobody reads it any more', async () => {
    await fuse(['local', 'up']);
    const following = startFuse(['local', 'logs', '-f', '-n', '1'], { env: env() });
    await fuse(['env', 'get', 'fuse-somebody']);
    await following.says('fuse-somebody');
    process.kill(-(following.child.pid ?? Number.NaN), 'SIGINT');
    await following.outcome;
  });

  it('does not start over a process that has its port, and names it', async () => {
    const server = createServer().listen(port, '127.0.0.1');
    await once(server, 'listening');
    const { code, stderr } = await fuse(['local', 'up']);
    server.close();
    expect([code, stderr]).toEqual([1, expect.stringContaining(`port ${port} is in use by `)]);
    expect(stderr).toContain(`(pid ${process.pid})`);
    expect(stderr).toContain(`hint: stop that, or choose another port: FUSE_PORT=${port + 1} fuse local up`);
  });

  it('says what to do when kernel and image were never built', async () => {
    await rm(join(home, 'assets'));
    for (const args of [
      ['local', 'up'],
      ['local', 'up', '--foreground'],
    ]) {
      const { code, stderr } = await fuse(args);
      expect([code, stderr]).toEqual([
        1,
        expect.stringContaining('hint: run `npm run setup` in the project to build them'),
      ]);
    }
  });

  it('that cannot start says why, and leaves nothing running', async () => {
    await rm(join(home, 'assets'));
    await mkdir(join(home, 'assets'));
    await writeFile(join(home, 'assets', 'manifest.json'), '{"kernel": 7}');
    const { code, stderr } = await fuse(['local', 'up']);
    expect([code, stderr]).toEqual([1, expect.stringMatching(/the local stack did not start: .*kernel/s)]);
    expect(await processesOfHome()).toEqual([]);
  });

  it('refuses a second service for one home, and keeps the first', async () => {
    await fuse(['local', 'up']);
    const { pid } = await localFile();
    const second: ChildProcess = spawn(process.execPath, ['apps/local/dist/main.js'], {
      env: { ...process.env, ...env(), FUSE_PORT: String(await freePort()) },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let stderr = '';
    second.stderr?.on('data', (chunk) => {
      stderr += chunk;
    });
    await once(second, 'close');
    expect([second.exitCode, stderr]).toEqual([1, expect.stringContaining('is served by another process already')]);
    expect((await localFile()).pid).toBe(pid);
    expect((await fuse(['env', 'list'])).code).toBe(0);
  });
});
