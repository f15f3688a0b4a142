/** Secrets wherever a client can put one, through everything that is done with an environment: none of them is found in clear afterwards. */
import { existsSync, readFileSync, statSync } from 'node:fs';
import { createLogger } from '@fuse/runtime';
import { sql } from 'kysely';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Db } from '../db/db.ts';
import { openPostgres } from '../db/postgres.ts';
import { engines, quiet } from '../db/test-database.ts';
import { callerOf, startTestOrchestrator, type TestOrchestrator } from '../test-orchestrator.ts';

/** No one a part of another. */
const planted = {
  env: 'planted-in-env',
  file: 'planted-in-a-file',
  script: 'planted-in-the-script',
  secret: 'planted-as-a-secret',
  variable: 'planted-in-the-manifest',
  gateway: 'planted-for-the-gateway',
  host: 'planted-host-token',
  stdin: 'planted-on-stdin',
  execEnv: 'planted-in-env-of-an-exec',
  runEnv: 'planted-in-env-of-a-run',
  runCode: 'planted-in-code-of-a-run',
};
const base64 = (text: string) => Buffer.from(text).toString('base64');

function readCredential(root: string): string[] {
  const path = `${root}/fuse/auth-token`;
  return existsSync(path) ? [readFileSync(path, 'utf8')] : [];
}

describe.each(engines)('what is secret, on %s,', (engine) => {
  const lines: string[] = [];
  /** Of everything that was answered but what is shown once. */
  const answers: string[] = [];
  const shownOnce: Record<string, string> = {};
  let test: TestOrchestrator;
  let db: Db | undefined;

  const call = async (method: string, path: string, body?: unknown, init?: RequestInit) => {
    const answer = await test.call(method, path, body, init);
    answers.push(JSON.stringify(answer.body));
    return answer;
  };
  const made = async (path: string, body: unknown, status = 201) => {
    const answer = await call('POST', path, body);
    expect(answer, JSON.stringify(answer.body)).toMatchObject({ status });
    return answer.body;
  };

  beforeAll(async () => {
    const log = createLogger({ name: 'test', level: 'trace', destination: { write: (line) => void lines.push(line) } });
    test = await startTestOrchestrator(engine, { host: { token: planted.host }, deps: { log } });
    if (typeof test.location === 'object' && 'url' in test.location)
      db = new Db(openPostgres({ url: test.location.url, log: quiet }));
    const manifest = { machine: { env: { A: { value: planted.variable }, B: { secret: 'token' } } } };
    const confided = {
      env: { E: planted.env },
      files: { '/srv/f': base64(planted.file) },
      manifest_inline: base64(JSON.stringify(manifest)),
      secrets: { token: planted.secret },
      gateway_url: 'https://gateway.example',
      gateway_token: planted.gateway,
    };
    const create = { ...confided, startup_script: `: ${planted.script}`, healthcheck: { exec: ['true'] } };
    const { id } = await made('/v1/environments', { task_id: 'life', ...create });
    const key = (await test.call('POST', '/v1/api-keys', { label: 'k', scopes: ['environments:read'] })).body;
    shownOnce.key = key.key;
    await callerOf(() => test.orchestrator.url)('GET', '/v1/environments', undefined, {
      headers: { authorization: `Bearer ${key.key}` },
    });
    const ticket = await test.call('POST', `/v1/environments/${id}/tickets`, { for: 'port', port: 80 });
    shownOnce.ticket = ticket.body.ticket;
    const exec = { cmd: ['wc', '-c'], env: { X: planted.execEnv }, stdin: planted.stdin };
    await made(`/v1/environments/${id}?action=exec`, exec, 200);
    const { id: snapshot } = await made(`/v1/environments/${id}/snapshots`, {});
    await made(`/v1/environments/${id}?action=fork`, {});
    await made('/v1/environments', { task_id: 'seeded', seed_snapshot_id: snapshot, wait: false }, 202);
    await call('POST', '/v1/environments', {
      task_id: 'refused',
      ...confided,
      startup_script: `echo "exit ${planted.secret} $E"; exit 3`,
    });
    const shell = `: ${planted.runCode}`;
    await made('/v1/runs', { shell, env: { R: planted.runEnv }, stdin: planted.stdin, wait: true }, 200);
    await made('/v1/runs', { shell, env: { R: planted.runEnv }, stdin: planted.stdin }, 202);
    for (const list of ['environments', 'snapshots', 'runs', 'hosts', 'api-keys', 'audit'])
      await call('GET', `/v1/${list}`);
    for (const one of [`environments/${id}`, `snapshots/${snapshot}`, 'hosts/host-1']) await call('GET', `/v1/${one}`);
  }, 120_000);
  afterAll(async () => {
    await db?.[Symbol.asyncDispose]();
    await test[Symbol.asyncDispose]();
  });

  const expectNothingIn = (text: string, where: string, tokens: string[] = []) => {
    for (const [name, value] of [...Object.entries({ ...planted, ...shownOnce }), ...tokens.map((one) => ['', one])])
      for (const form of [value ?? '', base64(value ?? ''), Buffer.from(value ?? '').toString('hex')])
        expect(
          text.includes(form),
          `${name} in ${where}: ${text.slice(text.indexOf(form) - 200, text.indexOf(form))}`,
        ).toBe(false);
  };
  /** Of the credentials that the guests have. */
  const credentials = () => [...test.host.vms.values()].flatMap(({ root }) => readCredential(root));

  it('is in the guest that it was given to, for its root alone, and in its forks', () => {
    expect(credentials().length).toBeGreaterThan(2);
    expect(new Set(credentials()).size).toBe(credentials().length);
    const roots = [...test.host.vms.values()].map(({ root }) => root).filter((root) => existsSync(`${root}/fuse/env`));
    const holders = roots.filter((root) => readFileSync(`${root}/fuse/env`, 'utf8') !== '');
    expect(holders).toHaveLength(3);
    for (const root of holders) {
      expect(readFileSync(`${root}/fuse/env`, 'utf8')).toBe(`A='${planted.variable}'\nB='${planted.secret}'\n`);
      expect(JSON.parse(readFileSync(`${root}/fuse/secrets.json`, 'utf8'))).toEqual({ token: planted.secret });
      expect(JSON.parse(readFileSync(`${root}/fuse/healthcheck.json`, 'utf8'))).toEqual({ exec: ['true'] });
      for (const name of ['env', 'secrets.json', 'auth-token'])
        expect(statSync(`${root}/fuse/${name}`).mode & 0o777, name).toBe(0o600);
    }
  });

  it('is in no answer that shows it not on purpose', () => {
    expect(answers.length).toBeGreaterThan(15);
    expectNothingIn(answers.join('\n'), 'answers', credentials());
  });

  it('is said to be there by an error that a script quotes it in', () => {
    expect(answers.filter((text) => text.includes('[REDACTED]'))).toHaveLength(1);
  });

  it('is in no line of the log', () => {
    expect(lines.length).toBeGreaterThan(10);
    expectNothingIn(lines.join('\n'), 'the log', credentials());
  });

  // PGlite's files are looked into by the test on a real VM.
  if (engine === 'postgres')
    it('is nowhere in the database', async () => {
      if (db === undefined) throw new Error('no database');
      const { rows: tables } = await sql<{ name: string }>`
      select tablename as name from pg_tables where schemaname = 'public'`.execute(db.query);
      expect(tables.length).toBeGreaterThan(15);
      const dump: string[] = [];
      for (const { name } of tables) {
        const { rows } = await sql<{ text: string }>`select t::text as text from ${sql.table(name)} t`.execute(
          db.query,
        );
        dump.push(...rows.map(({ text }) => `${name} ${text}`));
      }
      expect(dump.join('\n')).toContain('https://gateway.example');
      expectNothingIn(dump.join('\n'), 'the database', credentials());
    });
});
