/** checks.md, "Exec and processes" and "Resources", through the public API on a real VM. */
import { createHash, randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LocalStack } from './support/local-stack.ts';

let stack: LocalStack;
let id: string;
beforeAll(async () => {
  stack = await LocalStack.up();
  id = (await stack.client.environments.create({ task_id: 'exec-rows' })).id;
}, 180_000);
afterAll(() => stack?.[Symbol.asyncDispose](), 60_000);

const shell = (script: string, timeout_ms = 30_000) =>
  stack.client.environments.exec(id, { shell: script, timeout_ms });
const COUNT_SLEEPS = `ps -eo args | grep -c '^sleep 6[0-9][0-9]' || true`;

describe('exec', { timeout: 120_000 }, () => {
  it('is in an environment whose id is prefix and task id', () => {
    expect(id).toBe('fuse-exec-rows');
  });

  it.each([
    ['a background child', 'sleep 601 & echo done'],
    ['nohup', 'nohup sleep 602 >/dev/null 2>&1 & echo done'],
    ['setsid', 'setsid sleep 603 & echo done'],
    ['a noisy background child', '(while :; do echo noise; sleep 0.01; done) & echo done'],
  ])('returns when the command ends, whatever holds the pipe: %s', async (_, script) => {
    const started = performance.now();
    const result = await shell(script);
    expect(performance.now() - started).toBeLessThan(10_000);
    expect(result).toMatchObject({ exit_code: 0, timed_out: false });
    expect(result.stdout).toContain('done\n');
  });

  it('lets the background children live', async () => {
    expect(Number((await shell(COUNT_SLEEPS)).stdout.trim())).toBe(3);
    await shell('pkill sleep; pkill -f noise; true');
  });

  it('leaves nothing of the process tree after a timeout, and returns the output up to then', async () => {
    const result = await shell(
      'echo before; sleep 611 & setsid sleep 612 & (setsid sh -c "sleep 613 & sleep 614" &) ; sleep 615; echo after',
      1_500,
    );
    expect(result).toMatchObject({ exit_code: 124, timed_out: true, stdout: 'before\n' });
    expect((await shell(COUNT_SLEEPS)).stdout.trim()).toBe('0');
  });

  it('gives output byte for byte: CJK, a character split by a pause, random bytes on both streams', async () => {
    const cjk = await stack.client.environments.exec(id, {
      cmd: ['python3', '-c', 'import sys; sys.stdout.write("漢字かな" * 25_000)'],
    });
    expect(cjk.stdout).toBe('漢字かな'.repeat(25_000));
    const split = await shell(`printf '\\346\\274'; sleep 0.3; printf '\\242\\n'`);
    expect(split.stdout).toBe('漢\n');
    const script =
      'import random,sys,hashlib\nr=random.Random(7)\na=r.randbytes(300000);b=r.randbytes(300000)\nsys.stdout.buffer.write(a);sys.stderr.buffer.write(b)';
    const sums = await stack.client.environments.exec(id, {
      cmd: [
        'python3',
        '-c',
        script.replace(
          'sys.stdout.buffer.write(a);sys.stderr.buffer.write(b)',
          'print(hashlib.sha256(a).hexdigest(),hashlib.sha256(b).hexdigest())',
        ),
      ],
    });
    const bytes = await stack.client.environments.exec(id, { cmd: ['python3', '-c', script], encoding: 'base64' });
    const sum = (text: string) => createHash('sha256').update(Buffer.from(text, 'base64')).digest('hex');
    expect(`${sum(bytes.stdout)} ${sum(bytes.stderr)}`).toBe(sums.stdout.trim());
  });

  it('gives cat nothing to wait for', async () => {
    expect(await shell('cat; echo ended', 5_000)).toMatchObject({ stdout: 'ended\n', timed_out: false });
  });

  it('does not deadlock on a full stream that is followed by the other', async () => {
    const result = await shell('head -c 200000 /dev/zero | tr "\\0" e >&2; echo out');
    expect(result).toMatchObject({ stdout: 'out\n', stderr_bytes: 200_000 });
  });

  it('bounds unbounded output, counts it, and the next exec works', async () => {
    const result = await shell('yes', 2_000);
    expect(result).toMatchObject({ timed_out: true, truncated: true });
    expect(result.stdout_bytes).toBeGreaterThan(1_000_000);
    expect(result.stdout.length).toBeLessThanOrEqual(4 * 1024 * 1024);
    expect(await shell('echo next')).toMatchObject({ stdout: 'next\n', exit_code: 0 });
  });

  it('refuses a program that does not exist and leaves no process of it', async () => {
    await expect(stack.client.environments.exec(id, { cmd: ['/no/such/thing'] })).rejects.toMatchObject({
      status: 400,
      code: 'invalid_argument',
      message: expect.stringContaining('/no/such/thing'),
    });
    expect((await shell('ps -eo stat | grep -c "^Z" || true')).stdout.trim()).toBe('0');
  });

  it('honours env, cwd and user', async () => {
    const result = await stack.client.environments.exec(id, {
      shell: 'echo "$GREETING $(pwd) $(id -un)"',
      env: { GREETING: "it's $HOME" },
      cwd: '/tmp',
      user: 'nobody',
    });
    expect(result.stdout).toBe("it's $HOME /tmp nobody\n");
  });

  it('passes arguments as they are', async () => {
    const args = ['', ' ', '-n', '$(id)', '`id`', "'", '"', '\\', '*', 'a\nb', 'ü漢🎉', '--'];
    const result = await stack.client.environments.exec(id, {
      cmd: ['python3', '-c', 'import sys,json; print(json.dumps(sys.argv[1:]))', ...args],
    });
    expect(JSON.parse(result.stdout)).toEqual(args);
  });

  it('survives a client that hangs up in the middle, many times', async () => {
    await Promise.all(
      Array.from({ length: 40 }, async (_, i) => {
        const controller = new AbortController();
        setTimeout(() => controller.abort(), 20 + i * 15);
        await stack.client.environments.exec(id, { shell: 'sleep 621' }, { signal: controller.signal }).catch(() => {});
      }),
    );
    await expect.poll(async () => (await shell(COUNT_SLEEPS)).stdout.trim(), { timeout: 20_000 }).toBe('0');
  });

  it('answers 30 at once, each with its own output', async () => {
    const results = await Promise.all(
      Array.from({ length: 30 }, (_, i) => stack.client.environments.exec(id, { cmd: ['echo', `number ${i}`] })),
    );
    expect(results.map((result) => result.stdout)).toEqual(Array.from({ length: 30 }, (_, i) => `number ${i}\n`));
  });

  it('reaps 10,000 orphans', async () => {
    await shell('for i in $(seq 1 100); do (for j in $(seq 1 100); do (true &) ; done) ; done', 110_000);
    expect((await shell('ps -eo stat | grep -c "^Z" || true')).stdout.trim()).toBe('0');
  });
});

describe('a hostile guest', { timeout: 180_000 }, () => {
  const hostile = async (name: string, script: string, timeout_ms: number) => {
    const environment = await stack.client.environments.create({
      task_id: `hostile-${name}-${randomBytes(3).toString('hex')}`,
      spec: { ram_mb: 256 },
    });
    const attack = await stack.client.environments
      .exec(environment.id, { shell: script, timeout_ms })
      .catch((error: unknown) => error);
    const after = await stack.client.environments
      .exec(environment.id, { cmd: ['/bin/echo', 'alive'], timeout_ms: 25_000 })
      .catch((error: unknown) => error);
    await stack.client.environments.destroy(environment.id);
    return { attack, after };
  };

  it('cannot take the agent with a fork bomb', async () => {
    const { after } = await hostile('fork', ':(){ :|:& };:; sleep 3', 5_000);
    expect(after).toMatchObject({ stdout: 'alive\n' });
  });

  it('cannot take the agent with all memory, and is told that memory ran out', async () => {
    const { attack, after } = await hostile(
      'memory',
      'exec python3 -c "x=[]\nwhile True: x.append(bytearray(5_000_000))"',
      60_000,
    );
    expect(attack).toMatchObject({ oom_killed: true });
    expect(after).toMatchObject({ stdout: 'alive\n' });
  });

  it('cannot take the agent with kill -9 -1, a full disk or all descriptors', async () => {
    expect((await hostile('kill', 'kill -9 -1; sleep 1', 10_000)).after).toMatchObject({ stdout: 'alive\n' });
    const hoard = [
      'import os, signal',
      'for _ in range(100):',
      '  if os.fork() == 0:',
      '    try:',
      '      while True: os.dup(0)',
      '    except OSError: signal.pause()',
    ].join('\n');
    expect((await hostile('descriptors', `python3 -c '${hoard}'; sleep 3`, 30_000)).after).toMatchObject({
      stdout: 'alive\n',
    });
    const { attack, after } = await hostile('disk', 'dd if=/dev/zero of=/fill bs=1M 2>&1; echo status $?', 120_000);
    expect(attack).toMatchObject({ stdout: expect.stringContaining('No space left') });
    expect(after).toMatchObject({ stdout: 'alive\n' });
  });

  it('is destroyed even after rm -rf /', async () => {
    const environment = await stack.client.environments.create({ task_id: 'hostile-rm', spec: { ram_mb: 256 } });
    await stack.client.environments.exec(environment.id, {
      shell: 'rm -rf --no-preserve-root / 2>/dev/null; true',
      timeout_ms: 60_000,
    });
    await stack.client.environments.destroy(environment.id);
    await expect(stack.client.environments.get(environment.id)).rejects.toMatchObject({ status: 404 });
  });

  it('was never noticed by its neighbour', async () => {
    expect(await shell('echo still here')).toMatchObject({ stdout: 'still here\n' });
  });
});
