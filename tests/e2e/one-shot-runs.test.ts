import { createHash } from 'node:crypto';
import type { FuseApiError } from '@fuse/sdk';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LocalStack } from './support/local-stack.ts';

let stack: LocalStack;
beforeAll(async () => {
  stack = await LocalStack.up();
}, 180_000);
afterAll(() => stack?.[Symbol.asyncDispose](), 60_000);

const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

describe('a run', { timeout: 120_000 }, () => {
  it('executes python, saves what its globs name and destroys the VM', async () => {
    const code = `
import json, os, sys
print("hello", os.environ["WHO"], sys.stdin.read().strip())
os.makedirs("out/deep")
json.dump({"ok": True}, open("out/report.json", "w"))
open("out/deep/raw.bin", "wb").write(bytes(range(256)))
open("ignored.txt", "w").write("no")
print("warned", file=sys.stderr)`;
    const run = await stack.client.runs.create({
      code,
      language: 'python',
      env: { WHO: 'world' },
      stdin: 'from stdin',
      outputs: ['out/**'],
      labels: { suite: 'e2e' },
      wait: true,
    });
    expect(run).toMatchObject({
      state: 'succeeded',
      exit_code: 0,
      stdout: 'hello world from stdin\n',
      stderr: 'warned\n',
      truncated: false,
      labels: { suite: 'e2e' },
    });
    const paths = run.outputs.map((output) => `${output.kind} ${output.path}`).sort();
    expect(paths).toEqual([
      'file out/deep/raw.bin',
      'file out/report.json',
      'log .fuse/stderr.log',
      'log .fuse/stdout.log',
    ]);
    const raw = run.outputs.find((output) => output.path === 'out/deep/raw.bin');
    expect(raw).toMatchObject({ size_bytes: 256, sha256: sha256(Uint8Array.from({ length: 256 }, (_, i) => i)) });
    const anonymous = await fetch(raw?.url ?? '');
    expect(new Uint8Array(await anonymous.arrayBuffer())).toEqual(Uint8Array.from({ length: 256 }, (_, i) => i));
    expect(run.outputs.find((output) => output.path === 'out/report.json')?.content_type).toContain('application/json');
    for (const phase of ['admit_ms', 'start_ms', 'run_ms', 'save_ms', 'destroy_ms'] as const)
      expect(run.timings[phase]).toBeGreaterThanOrEqual(0);
    expect(await stack.vmmPids()).toEqual([]);
    expect(await stack.client.environments.list()).toEqual([]);
  });

  it.each([
    ['javascript', 'console.log(process.version.startsWith("v"), 6 * 7)', 'true 42\n'],
    ['shell', 'set -e; for i in 1 2 3; do printf "%s " $i; done; echo', '1 2 3 \n'],
    ['python', 'print("héllo ✓ 漢字 🎉")', 'héllo ✓ 漢字 🎉\n'],
  ] as const)('speaks %s', async (language, code, stdout) => {
    expect(await stack.client.runs.create({ code, language, wait: true })).toMatchObject({
      state: 'succeeded',
      stdout,
    });
  });

  it('calls a non-zero exit a result: failed, with the code and no error', async () => {
    const run = await stack.client.runs.create({ shell: 'echo partial; exit 7', wait: true });
    expect(run).toMatchObject({ state: 'failed', exit_code: 7, stdout: 'partial\n' });
    expect(run.error).toBeUndefined();
  });

  it('names the signal that killed the command', async () => {
    expect(await stack.client.runs.create({ shell: 'kill -SEGV $$', wait: true })).toMatchObject({
      state: 'failed',
      exit_code: 139,
      signal: 'SIGSEGV',
    });
  });

  it('ends at its time limit with the output so far and its outputs saved', async () => {
    const run = await stack.client.runs.create({
      shell: 'echo before; echo kept > kept.txt; (setsid sleep 300 &) ; sleep 300; echo after',
      limits: { timeout_ms: 2_000 },
      outputs: ['*.txt'],
      wait: true,
    });
    expect(run).toMatchObject({ state: 'timed_out', stdout: 'before\n' });
    expect(run.outputs.map((output) => output.path)).toContain('kept.txt');
  });

  it('reports running out of memory as that', async () => {
    const run = await stack.client.runs.create({
      code: 'x = []\nwhile True: x.append(bytearray(10_000_000))',
      language: 'python',
      limits: { ram_mb: 256 },
      wait: true,
    });
    expect(run).toMatchObject({ state: 'failed', oom_killed: true, exit_code: 137 });
  });

  it('says that a program does not exist, and ran nothing', async () => {
    const run = await stack.client.runs.create({ cmd: ['/no/such/program'], wait: true });
    expect(run).toMatchObject({ state: 'failed', error: { code: 'exec_failed' } });
    expect(run.error?.message).toContain('/no/such/program');
    expect(run.exit_code).toBeUndefined();
  });

  it('bounds its result and keeps the full log as an output', async () => {
    const run = await stack.client.runs.create({
      code: 'import sys\nfor i in range(100_000): print(f"line {i:08d}")',
      language: 'python',
      wait: true,
    });
    expect(run.truncated).toBe(true);
    expect(run.stdout_bytes).toBe(100_000 * 14);
    expect(Buffer.byteLength(run.stdout ?? '')).toBeLessThanOrEqual(262_144);
    const log = await stack.client.runs.outputs.download(run.id, '.fuse/stdout.log');
    expect(log.length).toBe(100_000 * 14);
    expect(new TextDecoder().decode(log.slice(-14))).toBe('line 00099999\n');
  });

  it('has a lossless form for binary output', async () => {
    const run = await stack.client.runs.create({
      code: 'import sys\nsys.stdout.buffer.write(bytes(range(256)) * 4)',
      language: 'python',
      encoding: 'base64',
      wait: true,
    });
    expect(Buffer.from(run.stdout ?? '', 'base64')).toEqual(
      Buffer.concat(Array.from({ length: 4 }, () => Buffer.from(Array.from({ length: 256 }, (_, i) => i)))),
    );
  });

  it('takes large files by upload, inline files, modes, and 10 MiB of stdin', async () => {
    const big = new Uint8Array(20 * 1024 * 1024).map((_, i) => (i * 2_654_435_761) >>> 24);
    const [upload, input] = await Promise.all([
      stack.client.files.upload(big),
      stack.client.files.upload(big.subarray(0, 10 * 1024 * 1024)),
    ]);
    expect(upload.sha256).toBe(sha256(big));
    const run = await stack.client.runs.create({
      shell: 'sha256sum < big.bin; sha256sum; ./tool.sh; stat -c %a tool.sh',
      files: [
        { path: 'big.bin', file_id: upload.id },
        { path: 'tool.sh', content: '#!/bin/sh\necho tool ran\n', mode: '0750' },
      ],
      stdin_file_id: input.id,
      wait: true,
    });
    expect(run.stdout).toBe(`${sha256(big)}  -\n${sha256(big.subarray(0, 10 * 1024 * 1024))}  -\ntool ran\n750\n`);
  });

  it('streams events that resume anywhere without gap or repeat', async () => {
    const created = await stack.client.runs.create({
      shell: 'for i in $(seq 1 40); do echo out $i; echo err $i >&2; sleep 0.05; done',
    });
    let stdout = '';
    let stderr = '';
    const states: string[] = [];
    let lastId = '';
    for (let connection = 0, over = false; !over && connection < 60; connection++) {
      const response = await stack.request(`/v1/runs/${created.id}/events`, {
        headers: lastId === '' ? {} : { 'Last-Event-ID': lastId },
      });
      expect(response.status).toBe(200);
      let text = '';
      let taken = 0;
      const decoder = new TextDecoder();
      for await (const chunk of response.body ?? []) {
        text += decoder.decode(chunk, { stream: true });
        const frames = text.split('\n\n');
        text = frames.pop() ?? '';
        for (const frame of frames) {
          const data = frame.split('\n').find((line) => line.startsWith('data: '));
          if (data === undefined) continue;
          lastId =
            frame
              .split('\n')
              .find((line) => line.startsWith('id: '))
              ?.slice(4) ?? lastId;
          const event = JSON.parse(data.slice(6));
          if (event.event === 'state') states.push(event.state);
          if (event.event === 'stdout') stdout += Buffer.from(event.data_base64, 'base64').toString();
          if (event.event === 'stderr') stderr += Buffer.from(event.data_base64, 'base64').toString();
          over ||= event.event === 'state' && event.state === 'succeeded';
          taken++;
          if (taken >= 3 && !over) break;
        }
        if (taken >= 3 && !over) break; // hang up in the middle
      }
    }
    const lines = (word: string) => Array.from({ length: 40 }, (_, i) => `${word} ${i + 1}\n`).join('');
    expect(stdout).toBe(lines('out'));
    expect(stderr).toBe(lines('err'));
    expect(states).toEqual(['queued', 'starting', 'running', 'saving', 'succeeded']);
  });

  it('can be cancelled while it runs; its output so far is kept', async () => {
    const created = await stack.client.runs.create({ shell: 'echo started; sleep 300' });
    for await (const event of stack.client.runs.events(created.id)) {
      if (event.event === 'stdout') await stack.client.runs.cancel(created.id);
    }
    const run = await stack.client.runs.get(created.id);
    expect(run).toMatchObject({ state: 'cancelled', stdout: 'started\n' });
    await expect.poll(() => stack.vmmPids(), { timeout: 10_000 }).toEqual([]);
  });

  it('is created once under one Idempotency-Key, however many ask', async () => {
    const body = { shell: 'echo once' };
    const answers = await Promise.all(
      Array.from({ length: 50 }, () => stack.post('/v1/runs', body, { 'Idempotency-Key': 'same' })),
    );
    expect(new Set(answers.map((answer) => answer.body.id)).size).toBe(1);
    expect(new Set(answers.map((answer) => answer.status))).toEqual(new Set([202]));
    expect(await stack.post('/v1/runs', { shell: 'echo other' }, { 'Idempotency-Key': 'same' })).toMatchObject({
      status: 409,
      body: { error: { code: 'conflict' } },
    });
    await stack.client.runs.wait(answers[0]?.body.id ?? '');
  });

  it('waits in the queue for room, in order, and fails at its queue deadline', async () => {
    const { hosts } = (await (await stack.request('/v1/hosts')).json()) as { hosts: { capacity: { cpus: number } }[] };
    const cpus = hosts[0]?.capacity.cpus ?? 0;
    const all = { cpus, ram_mb: 256 };
    const first = await stack.client.runs.create({ shell: 'sleep 4; echo first', limits: all });
    const second = await stack.client.runs.create({ shell: 'echo second', limits: all });
    const late = await stack.client.runs.create({ shell: 'echo never', limits: all, queue_timeout_ms: 500 });
    expect((await stack.client.runs.wait(late.id)).run).toMatchObject({
      state: 'failed',
      error: { code: 'queue_timeout' },
    });
    expect((await stack.client.runs.wait(first.id)).run).toMatchObject({ state: 'succeeded' });
    expect((await stack.client.runs.wait(second.id)).run).toMatchObject({ state: 'succeeded', stdout: 'second\n' });
  });

  it('is refused at once when no host could ever give what it asks', async () => {
    await expect(stack.client.runs.create({ shell: 'true', limits: { ram_mb: 4_000_000 } })).rejects.toMatchObject({
      status: 503,
      code: 'unavailable',
    });
    expect(
      await stack.client.runs.create({ image: 'nope', shell: 'true' }).catch((error: FuseApiError) => error),
    ).toMatchObject({ status: 400, hint: expect.stringContaining('base') });
  });

  it('is listed newest first, by state and label, in pages without gap or repeat', async () => {
    const made: string[] = [];
    for (let i = 0; i < 5; i++)
      made.push((await stack.client.runs.create({ shell: 'true', labels: { page: 'yes' } })).id);
    await Promise.all(made.map((id) => stack.client.runs.wait(id)));
    const listed: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await stack.client.runs.listPage({
        labels: { page: 'yes' },
        limit: 2,
        ...(cursor === undefined ? {} : { cursor }),
      });
      listed.push(...page.runs.map((run) => run.id));
      cursor = page.nextCursor;
    } while (cursor !== undefined);
    expect(listed).toEqual([...made].reverse());
  });
});
