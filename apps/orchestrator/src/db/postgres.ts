/** PostgreSQL by `pg`: a pool for queries, and one more connection for LISTEN that comes back by itself. */
import type { Logger } from '@fuse/runtime';
import type { PostgresPool, PostgresPoolClient } from 'kysely';
import pg from 'pg';
import { fromDatabaseError } from './database-errors.ts';
import type { DatabaseEngine } from './db.ts';
import { PostgresListener } from './postgres-listener.ts';

export interface PostgresOptions {
  url: string;
  log: Logger;
  maxConnections?: number;
  statementTimeoutMs?: number;
  applicationName?: string;
}

const OID = { int8: 20, numeric: 1700 };

const types: pg.CustomTypesConfig = {
  getTypeParser: ((oid: number, format?: 'text' | 'binary') =>
    oid === OID.int8 || oid === OID.numeric
      ? Number
      : pg.types.getTypeParser(oid, format)) as pg.CustomTypesConfig['getTypeParser'], // pg types it by literal oids
};

export function openPostgres(options: PostgresOptions): DatabaseEngine {
  const { url, log, maxConnections = 10, statementTimeoutMs = 30_000, applicationName = 'fuse-orchestrator' } = options;
  const pool = new pg.Pool({
    connectionString: url,
    max: maxConnections,
    application_name: applicationName,
    connectionTimeoutMillis: 10_000,
    idleTimeoutMillis: 30_000,
    statement_timeout: statementTimeoutMs,
    lock_timeout: statementTimeoutMs,
    idle_in_transaction_session_timeout: 60_000,
    keepAlive: true,
    types,
  });
  const onLost = (error: Error) => log.warn({ err: error }, 'database connection lost');
  pool.on('error', onLost); // of an idle connection
  pool.on('connect', (client) => client.on('error', onLost)); // of one in use; without a listener it ends the process
  const listener = new PostgresListener({ connectionString: url, application_name: `${applicationName}-listen` }, log);
  return {
    kind: 'postgres',
    pool: { connect: () => connect(pool), end: () => pool.end() } satisfies PostgresPool,
    listen: (channel, wake) => listener.listen(channel, wake),
    [Symbol.asyncDispose]: () => listener[Symbol.asyncDispose](),
  };
}

async function connect(pool: pg.Pool): Promise<PostgresPoolClient> {
  const client = await pool.connect().catch((error: unknown) => {
    throw fromDatabaseError(error);
  });
  const query = async (text: string, values: readonly unknown[]) => {
    try {
      return await client.query(text, [...values]);
    } catch (error) {
      throw fromDatabaseError(error);
    }
  };
  return { query: query as unknown as PostgresPoolClient['query'], release: () => client.release() }; // the port's other overload is for cursors, which nobody uses
}
