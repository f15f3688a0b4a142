/** Vitest `globalSetup`: one PostgreSQL for the whole run, found by every worker through `sharedPostgres()`. */
import { SHARED_POSTGRES_VARIABLE, startPostgres } from './postgres.ts';

export default async function setup(): Promise<() => Promise<void>> {
  const postgres = await startPostgres();
  process.env[SHARED_POSTGRES_VARIABLE] = postgres.adminUrl;
  return async () => {
    delete process.env[SHARED_POSTGRES_VARIABLE];
    await postgres[Symbol.asyncDispose]();
  };
}
