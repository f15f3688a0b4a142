/** What operators type: hosts, tenants, keys, quotas, usage, audit, events; and the lives of environments. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { clearAway } from './support/clear-away.ts';
import { fuse as runFuse, startFuse } from './support/fuse-cli.ts';
import { LocalStack } from './support/local-stack.ts';
import { Tmux, whyNoTmux } from './support/tmux.ts';

const noTmux = await whyNoTmux();
if (noTmux !== undefined) console.log(`skipped: quickstart, for ${noTmux}`);

let stack: LocalStack;
let home: string;
beforeAll(async () => {
  stack = await LocalStack.up();
  home = await mkdtemp(join(tmpdir(), 'fuse-e2e-cli-'));
}, 180_000);
afterAll(async () => {
  await rm(home, { recursive: true, force: true });
  await stack?.[Symbol.asyncDispose]();
}, 60_000);
afterEach(() => clearAway(stack), 120_000);

const env = (token = stack.token): Record<string, string> => ({ FUSE_URL: stack.url, FUSE_TOKEN: token });
const fuseAs = async (variables: Record<string, string>, ...args: string[]) => {
  const { code, stdout, stderr } = await runFuse(args, { env: variables });
  return { code, stdout: stdout.toString(), stderr };
};
const fuse = (...args: string[]) => fuseAs(env(), ...args);
const fuseJson = async (...args: string[]) => {
  const { code, stdout, stderr } = await fuse(...args, '-o', 'json');
  expect([code, stderr], args.join(' ')).toEqual([0, expect.not.stringContaining('hint:')]);
  return JSON.parse(stdout);
};

describe('operators', { timeout: 240_000 }, () => {
  it('look at hosts, and choose what is placed on them', async () => {
    const { hosts } = await fuseJson('hosts');
    const [{ id }] = hosts;
    expect(hosts).toEqual([
      expect.objectContaining({ state: 'active', allocated: expect.objectContaining({ cpus: 0 }) }),
    ]);
    expect(await fuseJson('hosts', 'metrics', id)).toMatchObject({ host_id: id, state: 'active' });

    expect((await fuse('hosts', 'cordon', id)).code).toBe(0);
    expect(await fuseJson('host', 'get', id)).toMatchObject({ state: 'cordoned' });
    const refused = await fuse('env', 'create', '--task-id', 'nowhere', '--ram-mb', '256');
    expect([refused.code, refused.stderr]).toEqual([1, expect.stringMatching(/^unavailable: /)]);
    for (const [command, state] of [
      ['drain', 'draining'],
      ['uncordon', 'active'],
    ] as const) {
      expect((await fuse('hosts', command, id)).stderr).toBe(`${id} ${state}\n`);
      expect(await fuseJson('hosts', 'get', id)).toMatchObject({ state });
    }
    expect((await fuseJson('hosts', 'probe', id)).last_seen).toEqual(expect.any(String));
    expect((await fuse('hosts', 'join-token', '--expires', '1m')).stdout).toMatch(/^fuse_join_[\w-]+\n$/);
    const lost = await fuse('hosts', 'lost', id, '--yes');
    expect([lost.code, lost.stderr]).toEqual([1, expect.stringMatching(/^conflict: .*\nhint: .*--force/)]);

    const remembered = { FUSE_TOKEN: stack.token, XDG_CONFIG_HOME: home };
    const connected = await fuseAs(remembered, 'connect', stack.url, '--name', 'here', '--master');
    expect([connected.code, connected.stderr]).toEqual([0, `connected to ${stack.url} as context here\n`]);
    expect((await fuseAs(remembered, 'host', id)).stderr).toBe(`here: ${id} is the active host\n`);
    expect(JSON.parse((await fuseAs(remembered, 'status', '-o', 'json')).stdout)).toMatchObject({
      context: 'here',
      master: true,
      active_host: id,
      host_count: 1,
      host_count_complete: true,
      environments_by_state: {},
    });
  });

  it('watch everything, and steer the life of an environment', async () => {
    const watching = startFuse(['events', '-o', 'json'], { env: env() });
    await fuseJson(
      'env',
      'create',
      '--task-id',
      'life',
      '--ram-mb',
      '256',
      '--tag',
      'team=blue',
      '--queue-timeout',
      '60',
    );
    const listed = await fuseJson('env', 'list', '--tag', 'team=blue');
    expect(listed.environments.map((each: { id: string }) => each.id)).toEqual(['fuse-life']);
    expect(await fuseJson('env', 'list', '--tag', 'team=red')).toEqual({ environments: [] });
    const updated = await fuseJson('env', 'update', 'fuse-life', '--expires', '3h', '--tag', 'team=red');
    expect(updated).toMatchObject({ labels: { team: 'red' } });
    expect(Date.parse(updated.expires_at)).toBeGreaterThan(Date.now() + 2 * 3_600_000);
    expect((await fuse('env', 'placement', 'fuse-life')).stdout).toMatch(/^ +HOST +SCORE +WHY NOT\n\* /);

    const token = async () => (await fuse('env', 'exec', 'fuse-life', '--', 'cat', '/fuse/auth-token')).stdout.trim();
    const before = await token();
    expect((await fuse('env', 'rotate', 'fuse-life')).code).toBe(0);
    expect(await token()).not.toBe(before);
    expect((await fuseAs(env(before), 'env', 'get', 'fuse-life')).stderr).toMatch(/^unauthorized: /);
    expect((await fuseAs(env(await token()), 'env', 'get', 'fuse-life', '-o', 'json')).code).toBe(0);

    const screen = await fuse('computer', 'screenshot', 'fuse-life', '--out', '-');
    expect([screen.code, screen.stdout, screen.stderr]).toEqual([
      1,
      '',
      expect.stringMatching(/^unavailable: .*is not up/),
    ]);
    const desktop = await fuse('desktop', 'fuse-life', '--no-open');
    expect([desktop.code, desktop.stdout, desktop.stderr]).toEqual([
      1,
      '',
      expect.stringMatching(/^unavailable: .*is not up.*\nhint: .*image with a display/),
    ]);
    expect((await fuse('desktop', 'fuse-none')).stderr).toMatch(/^not found: /);
    expect(await fuseJson('env', 'drain', 'fuse-life')).toMatchObject({ id: 'fuse-life', state: 'draining' });
    expect((await fuse('env', 'destroy', 'fuse-life', '--yes')).code).toBe(0);
    await watching.says('"draining"');
    await watching.says('"destroyed"');
    watching.child.kill('SIGINT');
    const { code, stdout } = await watching.outcome;
    expect(code).toBe(130);
    const states = JSON.parse(`[${stdout.toString().replaceAll('\n}\n', '\n},').replace(/,$/, '')}]`);
    expect(new Set(states.map((each: { vm_id: string }) => each.vm_id))).toEqual(new Set(['fuse-life']));
  });

  it('give customers what they may have, and see what they did', async () => {
    await fuseJson(
      'tenants',
      'create',
      'acme',
      '--label',
      'Acme',
      '--quota',
      'environments=0',
      '--quota',
      'snapshot_bytes=1G',
    );
    expect((await fuse('quotas', '--tenant', 'acme')).stdout).toMatch(/^TENANT acme .*\nenvironments +0 +0\n/);
    const minted = await fuseJson(
      'apikeys',
      'create',
      '--tenant',
      'acme',
      '--scope',
      'environments:read,environments:write',
    );
    expect(minted).toMatchObject({ tenant_id: 'acme', key: expect.stringMatching(/^fuse_sk_/) });
    const acme = env(minted.key);
    const over = await fuseAs(acme, 'env', 'create', '--task-id', 'much', '--ram-mb', '256');
    expect([over.code, over.stderr]).toEqual([1, expect.stringMatching(/^quota exceeded: .*environments/)]);
    const beyond = await fuseAs(acme, 'run', '--', 'true');
    expect([beyond.code, beyond.stderr]).toEqual([1, expect.stringMatching(/^forbidden: .*\nhint: .*--scope runs/)]);
    const strangers = await fuseAs({ ...acme, FUSE_TENANT: 'default' }, 'env', 'list');
    expect([strangers.code, strangers.stderr]).toEqual([1, expect.stringMatching(/^forbidden: /)]);
    expect(await fuseJson('quotas', 'set', 'acme', 'environments=none')).toMatchObject({
      quotas: { snapshot_bytes: 1_073_741_824 },
    });

    const keys = await fuseJson('apikeys', 'list', '--tenant', 'acme');
    expect(keys).toEqual([expect.objectContaining({ id: minted.id })]);
    expect((await fuse('keys', 'revoke', minted.id, '--yes')).code).toBe(0);
    expect((await fuseAs(acme, 'env', 'list')).stderr).toMatch(/^unauthorized: /);

    expect(await fuseJson('usage', '--tenant', 'acme')).toMatchObject({ tenant_id: 'acme', used: { environments: 0 } });
    const history = await fuseJson('usage', '--from', '2h');
    expect(history).toMatchObject({ tenant_id: 'default', total: { vcpu_seconds: expect.any(Number) } });
    const { entries } = await fuseJson('audit', '--actor', minted.id, '--status', '429');
    expect(entries).toEqual([
      expect.objectContaining({ actor_kind: 'api_key', code: 'quota_exceeded', tenant_id: 'acme' }),
    ]);
    const exported = (await fuse('audit', '--tenant', 'acme', '--export')).stdout.trim().split('\n');
    expect(exported.map((line) => JSON.parse(line).status)).toContain(403);
    expect((await fuse('metrics')).stdout).toContain('orchestrator_http_requests_total');
    expect((await fuse('tenants', 'delete', 'acme', '--yes')).stderr).toBe('acme deleted\n');
    const gone = await fuse('env', 'list', '--tenant', 'acme');
    expect([gone.code, gone.stderr]).toEqual([1, expect.stringMatching(/^not found: /)]);
  });

  it.skipIf(noTmux !== undefined)('are led through a first environment', async () => {
    const variables = { ...env(), FUSE_HOME: home, PATH: process.env.PATH ?? '' };
    await using terminal = await Tmux.start({ rows: 40, cols: 100, cwd: home, env: variables });
    const program = new URL('../../apps/cli/bin/fuse.js', import.meta.url).pathname;
    await terminal.line(`"${process.execPath}" "${program}" quickstart`);
    await terminal.shows(/Talking to .*\n[\s\S]*for which task\? \[demo\]/);
    await terminal.line('quick');
    await terminal.shows(/fuse-quick is running\.[\s\S]*What shall it run\?/);
    await terminal.line('echo hello-$((40 + 2))');
    await terminal.shows(/^hello-42$[\s\S]*It ended with 0\.[\s\S]*Destroy it\? \[no\]/m);
    await terminal.line('yes');
    await terminal.shows(/From here:/);
    expect(await stack.client.environments.list()).toEqual([]);
  });
});
