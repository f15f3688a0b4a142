import { mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { resolveConnection } from './connection.ts';
import { contextFilePath, readContextFile, withContext, withoutContext, writeContextFile } from './context-file.ts';

let home: string;
beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'fuse-cli-'));
});
afterEach(() => rm(home, { recursive: true }));

const env = (more: Record<string, string> = {}) => ({
  XDG_CONFIG_HOME: join(home, 'config'),
  FUSE_HOME: join(home, 'fuse'),
  ...more,
});
const prod = { name: 'prod', base_url: 'https://prod.example', token: 't1', master: true };
const path = () => contextFilePath(undefined, env());

async function localStack(startTime: string): Promise<void> {
  await mkdir(join(home, 'fuse'), { recursive: true });
  await writeFile(join(home, 'fuse', 'token'), 'local-token\n');
  const local = { pid: process.pid, start_time: startTime, url: 'http://127.0.0.1:9' };
  await writeFile(join(home, 'fuse', 'local.json'), JSON.stringify(local));
}

async function ownStartTime(): Promise<string> {
  const stat = await readFile('/proc/self/stat', 'utf8');
  const boot = (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim();
  return `${boot} ${stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]}`;
}

describe('the file of contexts', () => {
  it('is for its owner only', async () => {
    await writeContextFile(path(), withContext({ contexts: [] }, prod));
    expect((await stat(path())).mode & 0o777).toBe(0o600);
    expect((await stat(join(home, 'config', 'fuse'))).mode & 0o777).toBe(0o700);
  });

  it('keeps what other versions wrote', async () => {
    await mkdir(join(home, 'config', 'fuse'), { recursive: true });
    await writeFile(
      path(),
      'current_context: a\nnew_key: 7\ncontexts:\n  - name: a\n    base_url: http://a\n    active_host: h1\n    colour: red\n',
    );
    await writeContextFile(path(), withContext(await readContextFile(path()), prod));
    expect(await readContextFile(path())).toEqual({
      current_context: 'prod',
      new_key: 7,
      contexts: [{ name: 'a', base_url: 'http://a', active_host: 'h1', colour: 'red' }, prod],
    });
  });

  it('replaces a context of the same name and forgets removed ones', async () => {
    const file = withContext(withContext({ contexts: [] }, prod), { ...prod, token: 't2' });
    expect(file.contexts).toEqual([{ ...prod, token: 't2' }]);
    expect(withoutContext(file, 'prod')).toEqual({ contexts: [] });
  });

  it('that is broken is named, not overwritten', async () => {
    await mkdir(join(home, 'config', 'fuse'), { recursive: true });
    await writeFile(path(), 'contexts: 7');
    await expect(readContextFile(path())).rejects.toThrow(/config\.yaml is not a list of contexts/);
    await writeFile(path(), 'a: [b');
    await expect(readContextFile(path())).rejects.toThrow(/config\.yaml is not a list of contexts/);
  });
});

describe('whom commands talk to', () => {
  it('is the context that --context names, before all else', async () => {
    await writeContextFile(path(), withContext({ contexts: [] }, prod));
    const found = await resolveConnection({ context: 'prod' }, env({ FUSE_URL: 'http://other', FUSE_TOKEN: 'x' }));
    expect(found).toEqual({ name: 'prod', baseUrl: 'https://prod.example', token: 't1', master: true });
  });

  it('is FUSE_URL before the current context', async () => {
    await writeContextFile(path(), withContext({ contexts: [] }, prod));
    const found = await resolveConnection({}, env({ FUSE_URL: 'http://other', FUSE_TOKEN: 'x' }));
    expect(found).toMatchObject({ baseUrl: 'http://other', token: 'x' });
  });

  it('is the current context, with FUSE_TOKEN in place of its token', async () => {
    await writeContextFile(path(), withContext({ contexts: [] }, prod));
    expect(await resolveConnection({}, env())).toMatchObject({ name: 'prod', token: 't1' });
    expect(await resolveConnection({}, env({ FUSE_TOKEN: 'x' }))).toMatchObject({ name: 'prod', token: 'x' });
  });

  it('is the local stack when no context is current and its process lives', async () => {
    await localStack(await ownStartTime());
    const local = { name: 'local', baseUrl: 'http://127.0.0.1:9', token: 'local-token' };
    expect(await resolveConnection({}, env())).toMatchObject(local);
    expect(await resolveConnection({ context: 'local' }, env())).toMatchObject(local);
  });

  it('is not a stack whose pid has gone to another process', async () => {
    await localStack('another-boot 1');
    await expect(resolveConnection({}, env())).rejects.toMatchObject({
      message: 'no active context: run `fuse connect <url> --token <token>` first',
      hint: expect.stringContaining('is not running: `fuse local up` starts it'),
    });
    await expect(resolveConnection({ context: 'local' }, env())).rejects.toThrow('the local stack is not up');
  });

  it('is never a context that does not exist', async () => {
    await writeContextFile(path(), withContext({ contexts: [] }, prod));
    await expect(resolveConnection({ context: 'nope' }, env())).rejects.toMatchObject({ hint: 'choose one of: prod' });
  });
});
