/** What its owner may say to a running environment, on a real VM: labels, lifetimes, a new credential, a drain. */
import { FuseClient } from '@fuse/sdk';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { clearAway } from './support/clear-away.ts';
import { LocalStack } from './support/local-stack.ts';

let stack: LocalStack;
beforeAll(async () => {
  stack = await LocalStack.up();
}, 180_000);
afterAll(() => stack?.[Symbol.asyncDispose](), 60_000);
afterEach(() => clearAway(stack), 120_000);

const spec = { cpus: 1, ram_mb: 256, storage_gb: 1 };
const TOKEN_FILE = '/fuse/auth-token';

describe('a running environment', { timeout: 300_000 }, () => {
  it('has a credential of its own, which is replaced in the guest and refused from then on', async () => {
    const { environments } = stack.client;
    const { id } = await environments.create({ task_id: 'own', spec });
    const read = async (of = id) => (await environments.exec(of, { cmd: ['cat', TOKEN_FILE] })).stdout;
    const as = (token: string) => new FuseClient({ baseUrl: stack.url, token }).environments;
    const first = await read();
    expect(first).toMatch(/^fuse_env_[A-Za-z0-9_-]{43}$/);
    expect((await environments.exec(id, { cmd: ['stat', '-c', '%a %U', TOKEN_FILE] })).stdout).toBe('600 root\n');
    expect(await as(first).get(id)).toMatchObject({ id, state: 'running' });
    expect(await as(first).exec(id, { cmd: ['echo', 'me'] })).toMatchObject({ stdout: 'me\n' });
    await expect(as(first).destroy(id)).rejects.toMatchObject({ status: 403, code: 'unauthorized' });
    const fork = await environments.fork(id);
    const forked = await read(fork.id);
    expect(forked).not.toBe(first);
    await expect(as(first).get(fork.id)).rejects.toMatchObject({ code: 'not_found' });

    await environments.rotateToken(id);
    await expect(as(first).get(id)).rejects.toMatchObject({ status: 401 });
    const second = await read();
    expect(second).not.toBe(first);
    expect(await as(second).exec(id, { shell: `cat ${TOKEN_FILE}` })).toMatchObject({ stdout: second });
    expect(await as(forked).get(fork.id)).toMatchObject({ id: fork.id });

    await environments.pause(id);
    await environments.resume(id);
    expect(await read()).toBe(second);
    expect(await as(second).get(id)).toMatchObject({ id });
    expect((await environments.exec(id, { cmd: ['env'] })).stdout).not.toContain('fuse_env_');
  });

  it('is found by its labels, lives as long as it is told to, and ends in order when it is drained', async () => {
    const { environments } = stack.client;
    const { id } = await environments.create({ task_id: 'told', spec, labels: { team: 'a' } });
    const updated = await environments.update(id, { labels: { team: 'b' }, expires_in_seconds: 600 });
    expect(updated).toMatchObject({ labels: { team: 'b' } });
    expect(Date.parse(updated.expires_at ?? '') - Date.now()).toBeLessThan(600_000);
    expect((await environments.list({ labels: { team: 'b' } })).map((each) => each.id)).toEqual([id]);
    expect(await environments.list({ labels: { team: 'a' } })).toEqual([]);

    // One that tidies up, one that hides from its exec, one that ended and left something in the background.
    const tidy = environments.exec(id, {
      shell: "trap 'sleep 0.5; echo tidy >/workspace/tidy; exit 7' TERM; echo up; while :; do sleep 0.1; done",
    });
    const hidden = environments.exec(id, { shell: 'setsid sh -c "sleep 611 & wait"; echo over' });
    await environments.exec(id, { shell: 'setsid sleep 612 >/dev/null 2>&1 & echo left' });
    const sleeping = async () => {
      const { processes } = await environments.processes.list(id);
      return processes.filter(({ command }) => command[0] === 'sleep' && Number(command[1]) > 600).length;
    };
    await expect.poll(sleeping, { timeout: 30_000 }).toBe(2);
    const drained = await environments.drain(id);
    expect(drained).toMatchObject({ id, state: 'draining' });
    expect(drained.error).toBeUndefined();
    expect(await tidy).toMatchObject({ exit_code: 7 });
    expect((await hidden).exit_code).not.toBe(0);
    await expect(environments.exec(id, { cmd: ['true'] })).rejects.toMatchObject({ code: 'conflict' });
    await expect(environments.pause(id)).rejects.toMatchObject({ code: 'conflict' });
    await environments.update(id, { expires_in_seconds: 1 });
    const states = [];
    for await (const { state } of await environments.events(id)) states.push(state);
    expect(states).toEqual(['draining', 'destroying', 'destroyed']);
  });
});
