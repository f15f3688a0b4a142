/** Vitest `globalSetup`: one PostgreSQL for the whole run, found by every worker through `sharedPostgres()`. */
import { SHARED_POSTGRES_VARIABLE, startPostgres } from './postgres.ts';

export default async function setup(): Promise<() => Promise<void>> {
  // Every project of a run calls this; the first one's is for all.
  if (process.env[SHARED_POSTGRES_VARIABLE] !== undefined) return async () => {};
  const postgres = await startPostgres();
  process.env[SHARED_POSTGRES_VARIABLE] = postgres.adminUrl;
  return async () => {
    delete process.env[SHARED_POSTGRES_VARIABLE];
    await postgres[Symbol.asyncDispose]();
  };
}
