/** A real PostgreSQL for tests: its own cluster in a temporary directory, reached by a Unix socket, without fsync. */
import { createHash, randomBytes } from 'node:crypto';
import { chown, mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { KeptProcess } from './kept-process.ts';
import { findPostgresBinaries, unprivilegedUser } from './postgres-binaries.ts';

export interface TestDatabase extends AsyncDisposable {
  url: string;
  name: string;
}

export type Migrate = (databaseUrl: string) => Promise<unknown>;

export interface TestPostgres extends AsyncDisposable {
  /** Of the `postgres` database, as superuser. */
  adminUrl: string;
  /**
   * A database of the caller's own. With `migrate`, that runs once per cluster on a template and every database is a clone of it.
   * A template is known by `templateName`, by default by the source text of `migrate`.
   */
  createDatabase(migrate?: Migrate, templateName?: string): Promise<TestDatabase>;
}

export const SHARED_POSTGRES_VARIABLE = 'FUSE_TEST_POSTGRES_URL';

let shared: Promise<TestPostgres> | undefined;

/** The cluster that the run's global set-up started, or else one for this process, which ends with it. */
export function sharedPostgres(): Promise<TestPostgres> {
  const url = process.env[SHARED_POSTGRES_VARIABLE];
  shared ??= url === undefined ? startPostgres() : Promise.resolve(attach(url, async () => {}));
  return shared;
}

export async function startPostgres(): Promise<TestPostgres> {
  const binaries = await findPostgresBinaries();
  const user = await unprivilegedUser();
  const directory = await mkdtemp(join(tmpdir(), 'fuse-postgres-'));
  if (user !== undefined) await chown(directory, user.uid, user.gid);
  const asUser =
    user === undefined ? [] : ['setpriv', `--reuid=${user.uid}`, `--regid=${user.gid}`, '--clear-groups', '--'];
  const server = await KeptProcess.start({
    argv: [...asUser, '/bin/sh', '-c', startScript, 'postgres', binaries, directory],
    directory,
    stopSignal: 'INT', // PostgreSQL's fast shutdown
    env: { PATH: process.env.PATH, LC_ALL: 'C' },
  });
  const adminUrl = `postgresql://fuse@localhost/postgres?host=${encodeURIComponent(directory)}`;
  await server.whenReady('PostgreSQL', () => accepts(adminUrl));
  return attach(adminUrl, () => server[Symbol.asyncDispose]());
}

const startScript = `
set -e
"$1/initdb" --pgdata="$2/data" --username=fuse --auth=trust --encoding=UTF8 --locale=C --no-sync --no-instructions
exec "$1/postgres" -D "$2/data" -k "$2" -c listen_addresses= -c max_connections=300 \
  -c fsync=off -c synchronous_commit=off -c full_page_writes=off -c shared_buffers=64MB
`;

async function accepts(url: string): Promise<boolean> {
  const client = new pg.Client({ connectionString: url });
  try {
    await client.connect();
    return true;
  } catch {
    return false; // not yet: the caller asks again until its deadline, then shows the server's log
  } finally {
    await client.end().catch(() => {});
  }
}

function attach(adminUrl: string, stop: () => Promise<void>): TestPostgres {
  return {
    adminUrl,
    async createDatabase(migrate, templateName) {
      const name = `test_${randomBytes(8).toString('hex')}`;
      await asAdmin(adminUrl, async (admin) => {
        const template =
          migrate === undefined ? 'template1' : await ensureTemplate({ admin, adminUrl, migrate, name: templateName });
        await admin.query(`create database ${name} template ${template}`);
      });
      const drop = (admin: pg.Client) => admin.query(`drop database if exists ${name} with (force)`);
      return {
        name,
        url: urlOf(adminUrl, name),
        [Symbol.asyncDispose]: async () => {
          await asAdmin(adminUrl, drop);
        },
      };
    },
    [Symbol.asyncDispose]: stop,
  };
}

interface TemplateRequest {
  admin: pg.Client;
  adminUrl: string;
  migrate: Migrate;
  name: string | undefined;
}

/** Built under another name and renamed when whole; an advisory lock keeps other workers of the run from building it too. */
async function ensureTemplate({ admin, adminUrl, migrate, name }: TemplateRequest): Promise<string> {
  const key = createHash('sha256')
    .update(name ?? migrate.toString())
    .digest('hex')
    .slice(0, 16);
  const template = `template_${key}`;
  const building = `building_${key}`;
  await admin.query('select pg_advisory_lock(hashtext($1))', [template]);
  try {
    const found = await admin.query('select 1 from pg_database where datname = $1', [template]);
    if (found.rowCount === 0) {
      await admin.query(`drop database if exists ${building} with (force)`);
      await admin.query(`create database ${building}`);
      await migrate(urlOf(adminUrl, building));
      await admin.query(`alter database ${building} rename to ${template}`);
    }
  } finally {
    await admin.query('select pg_advisory_unlock(hashtext($1))', [template]);
  }
  return template;
}

async function asAdmin<T>(adminUrl: string, work: (admin: pg.Client) => Promise<T>): Promise<T> {
  const admin = new pg.Client({ connectionString: adminUrl });
  await admin.connect();
  try {
    return await work(admin);
  } finally {
    await admin.end();
  }
}

function urlOf(adminUrl: string, database: string): string {
  const url = new URL(adminUrl);
  url.pathname = `/${database}`;
  return url.href;
}
