/** Secrets of an environment on a real VM: what its root finds, and that nothing of them is found in clear on the host. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { LocalStack } from './support/local-stack.ts';

let stack: LocalStack;
beforeAll(async () => {
  stack = await LocalStack.up();
}, 180_000);
afterAll(async () => {
  await stack?.[Symbol.asyncDispose]();
}, 60_000);

const planted = {
  env: 'planted-in-env',
  file: 'planted-in-a-file',
  script: 'planted-in-the-script',
  secret: `planted 'as' a $secret`,
  execEnv: 'planted-in-env-of-an-exec',
  stdin: 'planted-on-stdin',
};
const base64 = (text: string) => Buffer.from(text).toString('base64');
const formsOf = (text: string) => [text, base64(text), JSON.stringify(text).slice(1, -1)];

/** Which of them are in these bytes. */
const foundIn = (bytes: Buffer, secrets: Record<string, string>) =>
  Object.entries(secrets).flatMap(([name, text]) => (formsOf(text).some((form) => bytes.includes(form)) ? [name] : []));

/** Guests' memory and disks hold what guests hold; an export's chunks are parts of them. */
const isGuestsOwn = (path: string) =>
  /\/host\/(templates|snapshots)\/.*(memory|disk|layer|device|flat)[^/]*$/.test(path);

async function filesBelow(directory: string): Promise<string[]> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  return entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
}

async function commandLines(): Promise<Buffer> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  const read = (pid: string) => readFile(`/proc/${pid}/cmdline`).catch(() => Buffer.of()); // it ended meanwhile
  return Buffer.concat(await Promise.all(pids.map(read)));
}

it('are in the guest for its root, and in clear nowhere else', { timeout: 300_000 }, async () => {
  const manifest = { version: '1', machine: { env: { B: { secret: 'token' }, A: { value: "it's" } } }, services: {} };
  const { id } = await stack.client.environments.create({
    task_id: 'confided',
    spec: { cpus: 1, ram_mb: 256, storage_gb: 1 },
    env: { E: planted.env },
    files: { '/srv/f': base64(planted.file) },
    manifest_inline: base64(JSON.stringify(manifest)),
    secrets: { token: planted.secret },
    // What is in /fuse is there before it runs.
    startup_script: `. /fuse/env && printf %s "$A $B" > /srv/read # ${planted.script}`,
  });
  const read = async (path: string) => (await stack.request(`/v1/environments/${id}/files?path=${path}`)).text();
  expect(await read('/srv/read')).toBe(`it's ${planted.secret}`);
  const modes = await stack.client.environments.exec(id, { shell: "stat -c '%a %U %n' /fuse/*" });
  expect(modes.stdout).toBe(
    [
      '600 root /fuse/auth-token',
      '600 root /fuse/env',
      '644 root /fuse/manifest.json',
      '600 root /fuse/secrets.json',
      '',
    ].join('\n'),
  );
  expect(JSON.parse(await read('/fuse/manifest.json'))).toEqual(manifest);
  expect(JSON.parse(await read('/fuse/secrets.json'))).toEqual({ token: planted.secret });
  const credential = await read('/fuse/auth-token');
  const secrets: Record<string, string> = { ...planted, credential };

  const counted = await stack.client.environments.exec(id, {
    shell: 'cat > /dev/null; sleep 1; echo done',
    env: { X: planted.execEnv },
    stdin: planted.stdin,
  });
  expect(counted.stdout).toBe('done\n');
  expect(foundIn(await commandLines(), secrets)).toEqual([]);
  const snapshot = await stack.client.snapshots.create(id, { include_memory: true });
  await stack.client.environments.destroy(id);
  await expect.poll(() => readdir(join(stack.home, 'host', 'vms')), { timeout: 60_000 }).toEqual([]);

  const files = (await filesBelow(stack.home)).filter((path) => !isGuestsOwn(path));
  expect(files.some((path) => path.includes(snapshot.id))).toBe(true);
  const { script: _, ...others } = secrets;
  // Commands, the startup script's too, and their output are kept with their results: /v1/environments/{id}/execs.
  const maybe = (path: string) => (path.includes('/objects/execs/') ? others : secrets);
  for (const path of files) expect(foundIn(await readFile(path), maybe(path)), path).toEqual([]);
});
