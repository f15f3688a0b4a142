import { randomBytes } from 'node:crypto';
import { sql } from 'kysely';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ensureCluster } from '../db/cluster.ts';
import { type Db, inMs, jsonb, type Tx } from '../db/db.ts';
import { engines, openTestDb, quiet, type TestDb } from '../db/test-database.ts';
import { openEnv, openStartup, sealEnv, sealStartup } from '../environments/environment-secrets.ts';
import { openHostToken } from '../hosts/host-store.ts';
import { LeaderLease } from '../reconciling/leader-lease.ts';
import { openCommand, sealRequest } from '../runs/run-secrets.ts';
import { openSnapshotEnv, sealSnapshotEnv } from '../snapshots/snapshot-secrets.ts';
import { createSealer } from './aes-sealer.ts';
import { Resealer } from './resealing.ts';
import { sealedAt } from './sealed-places.ts';
import type { Sealer } from './sealer.ts';

const SECRET = 'hunter2-hunter2';
const env = { PASSWORD: SECRET };
const keys = [randomBytes(32), randomBytes(32)] as const;
const uidOf = (index: number) => `00000000-0000-4000-8000-${String(index).padStart(12, '0')}`;

describe.each(engines)('what is secret in a database on %s', (engine) => {
  let test: TestDb;
  let db: Db;
  beforeEach(async () => {
    test = await openTestDb(engine);
    db = test.db;
  }, 60_000);
  afterEach(() => test[Symbol.asyncDispose]());

  const environment = (tx: Tx, index: number, columns: object) =>
    tx
      .insertInto('environments')
      .values({
        uid: uidOf(index),
        id: `fuse-${index}`,
        task_id: `${index}`,
        vm_id: `vm_${index}`,
        state: 'provisioning',
        image: 'base',
        spec: jsonb({}),
        cpus: 1,
        ram_mb: 1,
        storage_gb: 1,
        env: jsonb({}) as never, // as each case has it
        ...columns,
      })
      .execute();

  /** One of everything. With a sealer; without one as it was before there was sealing. */
  const fill = (sealer: Sealer | undefined) =>
    db.transaction(async (tx) => {
      const planned = { files: { '/f': SECRET }, script: SECRET, timeout_seconds: 30, waited: false };
      const prepared = { argv: ['echo', SECRET], env, cwd: '/', outputs: [], encoding: 'utf8' as const, files: [] };
      await environment(tx, 1, {
        env: jsonb(sealer === undefined ? env : sealEnv(sealer, env, uidOf(1))),
        startup: jsonb(sealer === undefined ? planned : sealStartup(sealer, planned, uidOf(1))),
        token_sealed: sealer?.seal(SECRET, sealedAt('environments.token_sealed', uidOf(1))) ?? `clear:${SECRET}`,
      });
      await environment(tx, 2, {});
      const snapshot = {
        id: 'snap',
        vm_id: 'fuse-1',
        task_id: '1',
        host_vm_id: 'vm_1',
        state: 'ready',
        image: 'base',
      } as const;
      await tx
        .insertInto('snapshots')
        .values({
          ...snapshot,
          include_memory: true,
          spec: jsonb({}),
          env: jsonb(sealer === undefined ? env : sealSnapshotEnv(sealer, env, 'snap')) as never, // in clear
          cpus: 1,
          ram_mb: 1,
          storage_gb: 1,
        })
        .execute();
      await tx
        .insertInto('runs')
        .values({
          id: 'run',
          state: 'queued',
          image: 'base',
          cpus: 1,
          ram_mb: 1,
          storage_gb: 1,
          timeout_ms: 1,
          request: jsonb<unknown>(sealer === undefined ? prepared : sealRequest(sealer, prepared, 'run')),
          queue_deadline: inMs(1),
        })
        .execute();
      await tx
        .insertInto('hosts')
        .values({
          ...{ id: 'h', url: 'http://h', backend: 'qemu', cpus: 1, ram_mb: 1, storage_gb: 1, vm_count: 1 },
          ...(sealer === undefined
            ? { token: SECRET }
            : { token_sealed: sealer.seal(SECRET, sealedAt('hosts.token_sealed', 'h')) }),
        })
        .execute();
    });

  const dump = async () => {
    const tables = ['cluster', 'environments', 'snapshots', 'runs', 'hosts'];
    const rows = await Promise.all(
      tables.map((table) => sql<{ all: string }>`select t::text as all from ${sql.table(table)} t`.execute(db.query)),
    );
    return rows.flatMap((result) => result.rows.map((row) => row.all)).join('\n');
  };

  const expectReadable = async (sealer: Sealer) => {
    const { query } = db;
    const row = await query
      .selectFrom('environments')
      .selectAll()
      .where('uid', '=', uidOf(1))
      .executeTakeFirstOrThrow();
    expect(openEnv(sealer, row)).toEqual(env);
    expect(row.startup && openStartup(sealer, row.startup, row.uid)).toEqual({
      files: { '/f': SECRET },
      script: SECRET,
      timeout_seconds: 30,
      waited: false,
    });
    expect(sealer.open(row.token_sealed ?? '', sealedAt('environments.token_sealed', row.uid))).toBe(SECRET);
    expect(openSnapshotEnv(sealer, await query.selectFrom('snapshots').selectAll().executeTakeFirstOrThrow())).toEqual(
      env,
    );
    const run = await query.selectFrom('runs').selectAll().executeTakeFirstOrThrow();
    expect(openCommand(sealer, run)).toEqual({ argv: ['echo', SECRET], env });
    expect(openHostToken(sealer, await query.selectFrom('hosts').selectAll().executeTakeFirstOrThrow())).toBe(SECRET);
  };

  const resealer = (sealer: Sealer) =>
    new Resealer({
      db,
      sealer,
      log: quiet,
      lease: new LeaderLease(db, { name: 'r', owner: 'o', ms: 1_000 }),
      intervalMs: 1_000,
    });
  const reseal = (sealer: Sealer) => resealer(sealer).round(new AbortController().signal);

  it('is read as it was written before there was a key, and sealed once there is one', async () => {
    const sealer = createSealer({ current: keys[0], old: undefined });
    const signingKey = randomBytes(32);
    await sql`insert into cluster (tag, url_signing_key) values ('tag', ${signingKey})`.execute(db.query);
    await fill(undefined);
    await expectReadable(sealer);
    expect(await dump()).toContain(SECRET);
    await reseal(sealer);
    expect(await dump()).not.toContain(SECRET);
    await expectReadable(sealer);
    expect((await ensureCluster(db, sealer)).urlSigningKey).toEqual(signingKey);
    const before = await dump();
    await reseal(sealer); // nothing is left to do
    expect(await dump()).toBe(before);
  });

  it('is sealed with the new key, after which the old one is not needed', async () => {
    const [first, second] = keys;
    const old = createSealer({ current: first, old: undefined });
    const { urlSigningKey } = await ensureCluster(db, old);
    await fill(old);
    await reseal(createSealer({ current: second, old: first }));
    const now = createSealer({ current: second, old: undefined });
    await expectReadable(now);
    expect((await ensureCluster(db, now)).urlSigningKey).toEqual(urlSigningKey);
    await expect(ensureCluster(db, old)).rejects.toThrow(/neither the current nor the old/);
  });

  it('is done however many rows there are, those that cannot be opened aside, and taken up where it was stopped', async () => {
    const [first, second] = keys;
    const old = createSealer({ current: first, old: undefined });
    await db.transaction(async (tx) => {
      for (let index = 1; index <= 450; index += 1)
        await environment(tx, index, { env: jsonb(sealEnv(old, env, uidOf(index))) });
    });
    await sql`update environments set env = ${jsonb(sealEnv(old, env, 'another'))} where uid = ${uidOf(7)}`.execute(
      db.query,
    );
    const both = createSealer({ current: second, old: first });
    const stopped = new AbortController();
    const lease = new LeaderLease(db, { name: 'r', owner: 'o', ms: 1_000 });
    const hold = lease.hold.bind(lease);
    lease.hold = () => {
      stopped.abort(new Error('stopped'));
      return hold();
    };
    const cut = new Resealer({ db, sealer: both, log: quiet, lease, intervalMs: 1_000 });
    await expect(cut.round(stopped.signal)).rejects.toThrow('stopped');
    const left = async (sealer: Sealer) =>
      (
        await sql<{ n: number }>`select count(*)::int as n from environments
          where not starts_with(env ->> 'sealed', ${sealer.prefix})`.execute(db.query)
      ).rows[0]?.n;
    expect(await left(both)).toBe(251);
    await reseal(both);
    expect(await left(both)).toBe(1);
  });
});
