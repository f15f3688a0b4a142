import { FuseClient } from '@fuse/sdk';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LocalStack } from './support/local-stack.ts';

let stack: LocalStack;
beforeAll(async () => {
  stack = await LocalStack.up();
}, 180_000);
afterAll(() => stack?.[Symbol.asyncDispose](), 60_000);

describe('environments', { timeout: 120_000 }, () => {
  it('are created running, found, listed, destroyed and then not found', async () => {
    const made = await stack.client.environments.create({
      task_id: 'life',
      spec: { cpus: 1, ram_mb: 256, storage_gb: 1 },
    });
    expect(made).toMatchObject({
      id: 'fuse-life',
      state: 'running',
      task_id: 'life',
      spec: { cpus: 1, ram_mb: 256, storage_gb: 1 },
    });
    expect(await stack.client.environments.exec(made.id, { cmd: ['echo', 'usable at once'] })).toMatchObject({
      stdout: 'usable at once\n',
    });
    expect((await stack.client.environments.list({ taskId: 'life' })).map((each) => each.id)).toEqual(['fuse-life']);
    expect(await stack.client.environments.list({ state: 'running', taskId: 'other' })).toEqual([]);
    await expect(stack.client.environments.create({ task_id: 'life' })).rejects.toMatchObject({
      status: 409,
      code: 'conflict',
      message: expect.stringContaining('task already assigned'),
    });
    await stack.client.environments.destroy(made.id);
    await expect(stack.client.environments.get(made.id)).rejects.toMatchObject({ status: 404, code: 'not_found' });
    expect((await stack.request(`/v1/environments/${made.id}`, { method: 'DELETE' })).status).toBe(404);
    expect(await stack.vmmPids()).toEqual([]);
  });

  it('are new machines: clock, hostname, machine-id, boot id and randomness differ', async () => {
    const made = await Promise.all(
      Array.from({ length: 6 }, (_, i) =>
        stack.client.environments.create({ task_id: `fresh-${i}`, spec: { ram_mb: 256 } }),
      ),
    );
    const probe =
      'cat /etc/machine-id /proc/sys/kernel/random/boot_id /proc/sys/kernel/random/uuid; hostname; head -c 16 /dev/urandom | od -An -tx1; date +%s%N';
    const seen = await Promise.all(
      made.map(async (each) => {
        const lines = (await stack.client.environments.exec(each.id, { shell: probe })).stdout.trim().split('\n');
        expect(Math.abs(Number(BigInt(lines[5] ?? 0) / 1_000_000n) - Date.now())).toBeLessThan(3_000);
        return lines.slice(0, 5);
      }),
    );
    for (let line = 0; line < 5; line++) expect(new Set(seen.map((lines) => lines[line])).size).toBe(made.length);
    await Promise.all(made.map((each) => stack.client.environments.destroy(each.id)));
  });

  it('have a clock that keeps the pace of the host’s', async () => {
    const made = await stack.client.environments.create({ task_id: 'pace', spec: { ram_mb: 256 } });
    const reading = async () => {
      const asked = performance.now();
      const { stdout } = await stack.client.environments.exec(made.id, { cmd: ['cat', '/proc/uptime'] });
      return { host: (asked + performance.now()) / 2_000, guest: Number(stdout.split(' ')[0]) };
    };
    const before = await reading();
    await new Promise((resolve) => setTimeout(resolve, 6_000));
    const after = await reading();
    expect((after.guest - before.guest) / (after.host - before.host)).toBeCloseTo(1, 0.9);
    await stack.client.environments.destroy(made.id);
  });

  it('do not see each other’s writes, nor dirty the template', async () => {
    const [a, b] = await Promise.all(
      ['wa', 'wb'].map((task_id) => stack.client.environments.create({ task_id, spec: { ram_mb: 256 } })),
    );
    await stack.client.environments.exec(a?.id ?? '', {
      shell: 'echo mine > /etc/mine; echo mine > /workspace/mine; sync',
    });
    expect(await stack.client.environments.exec(b?.id ?? '', { shell: 'ls /etc/mine /workspace/mine' })).toMatchObject({
      exit_code: 2,
    });
    await Promise.all([a, b].map((each) => stack.client.environments.destroy(each?.id ?? '')));
    const c = await stack.client.environments.create({ task_id: 'wc', spec: { ram_mb: 256 } });
    expect(await stack.client.environments.exec(c.id, { shell: 'ls /etc/mine /workspace/mine' })).toMatchObject({
      exit_code: 2,
    });
    await stack.client.environments.destroy(c.id);
  });

  it('take packages by pip, as root does on a machine of its own', async () => {
    const { id } = await stack.client.environments.create({ task_id: 'pip', spec: { ram_mb: 512 } });
    const files = stack.client.environments.files(id);
    await files.writeFile('/workspace/p/setup.py', 'from setuptools import setup\nsetup(name="p", py_modules=["p"])\n');
    await files.writeFile('/workspace/p/p.py', 'value = 7\n');
    const shell =
      'pip install --quiet --no-index --no-build-isolation /workspace/p && cd / && python3 -c "import p; print(p.value)"';
    expect(await stack.client.environments.exec(id, { shell })).toMatchObject({ exit_code: 0, stdout: '7\n' });
    await stack.client.environments.destroy(id);
  });

  it('have no network card, resolve no name', async () => {
    const made = await stack.client.environments.create({ task_id: 'no-net', spec: { ram_mb: 256 } });
    const result = await stack.client.environments.exec(made.id, {
      shell: 'ls /sys/class/net; getent hosts example.com; echo $?; ping -c1 -W1 1.1.1.1 2>&1 | tail -1',
      timeout_ms: 20_000,
    });
    expect(result.stdout.split('\n').slice(0, 2)).toEqual(['lo', '2']);
    await stack.client.environments.destroy(made.id);
  });

  it('are destroyed by 20 callers at once without a quarrel', async () => {
    const made = await stack.client.environments.create({ task_id: 'coalesce', spec: { ram_mb: 256 } });
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => stack.request(`/v1/environments/${made.id}`, { method: 'DELETE' })),
    );
    expect(answers.every((answer) => answer.status === 204 || answer.status === 404)).toBe(true);
    expect(answers.some((answer) => answer.status === 204)).toBe(true);
    await expect.poll(() => stack.vmmPids(), { timeout: 10_000 }).toEqual([]);
  });

  it('can be told apart from strangers: no token, a wrong token', async () => {
    for (const token of [undefined, 'wrong']) {
      const stranger = new FuseClient({ baseUrl: stack.url, ...(token === undefined ? {} : { token }) });
      await expect(stranger.environments.list()).rejects.toMatchObject({ status: 401, code: 'unauthorized' });
    }
  });

  it('end when their time is over, and say why', async () => {
    const made = await stack.client.environments.create({
      task_id: 'short',
      spec: { ram_mb: 256, max_runtime_seconds: 2 },
    });
    const events = await stack.client.environments.events(made.id);
    const seen: { state: string; error?: string | undefined }[] = [];
    for await (const event of events) seen.push(event);
    expect(seen.at(-1)?.state).toBe('destroyed');
    expect(seen.find((event) => event.state === 'destroying')?.error).toContain('exceeded');
  }, 150_000);
});
