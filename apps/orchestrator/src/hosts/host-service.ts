/** Registering, listing and taking hosts out of service. */
import { AppError, type Host } from '@fuse/contract';
import { withDeadline } from '@fuse/runtime';
import { sql } from 'kysely';
import type { Db, Tx } from '../db/db.ts';
import type { HostRow } from '../db/schema.ts';
import { countOnHost, usedByHost } from '../environments/environment-store.ts';
import type { IdempotentRequest } from '../idempotency/idempotency-key.ts';
import { defaultRunConfig } from '../runs/run-config.ts';
import type { Sealer } from '../secrets/sealer.ts';
import { loseHost as loseSnapshots } from '../snapshots/lost-snapshots.ts';
import { toHost } from './host.ts';
import { HostClient } from './host-client.ts';
import type { HostTls } from './host-request.ts';
import { recordHeartbeat, setHostState } from './host-states.ts';
import { deleteHost, hostById, listHosts, lockHost, openHostToken } from './host-store.ts';
import { loseHost } from './lose-host.ts';
import { type HostContext, registerHost } from './register-host.ts';
import type { GivenRegistration } from './registration.ts';

const PROBE_MS = 5_000;

export interface HostServiceOptions {
  tls?: HostTls | undefined;
  /** Of runs that end with their host. */
  runRetentionMs?: number;
}

export class HostService {
  readonly #context: HostContext;
  readonly #runRetentionMs: number;

  constructor(db: Db, sealer: Sealer, { tls, runRetentionMs = defaultRunConfig.retentionMs }: HostServiceOptions = {}) {
    this.#context = { db, sealer, tls };
    this.#runRetentionMs = runRetentionMs;
  }

  /** For connections from now on. */
  useTls(tls: HostTls | undefined): void {
    this.#context.tls = tls;
  }

  /** A host agent registers itself: what `before` throws keeps it out. */
  async join(request: GivenRegistration, before: (tx: Tx) => Promise<void>): Promise<Host> {
    return (await registerHost(this.#context, request, { mode: 'refresh', before })).answer;
  }

  /** `POST /v1/hosts`: replaces what was registered under this id. */
  register(request: GivenRegistration, idempotent?: IdempotentRequest): Promise<{ answer: Host; replayed: boolean }> {
    return registerHost(this.#context, request, { mode: 'replace', idempotent });
  }

  /** What a host's own process does each time it starts: its age, and what its operator chose, stay. */
  async refresh(request: GivenRegistration): Promise<Host> {
    return (await registerHost(this.#context, request, { mode: 'refresh' })).answer;
  }

  async list(afterId: string | undefined, limit: number): Promise<Host[]> {
    const used = await usedByHost(this.#context.db.query);
    return (await listHosts(this.#context.db.query, afterId, limit)).map((row) => toHost(row, used.get(row.id)));
  }

  async get(id: string): Promise<Host> {
    const row = await hostById(this.#context.db.query, id);
    if (row === undefined) throw notFound(id);
    return toHost(row, (await usedByHost(this.#context.db.query)).get(id));
  }

  async setState(id: string, state: HostRow['state']): Promise<void> {
    if (!(await this.#context.db.transaction((tx) => setHostState(tx, id, state)))) throw notFound(id);
  }

  /** As it is now, written down. Throws when it does not answer. */
  async probe(id: string): Promise<Host> {
    const { db } = this.#context;
    const row = await hostById(db.query, id);
    if (row === undefined) throw notFound(id);
    const heard = await this.#ask(row);
    await db.transaction((tx) => recordHeartbeat(tx, id, heard));
    return this.get(id);
  }

  /** See lose-host.ts. 409 while it answers, unless forced. */
  async declareLost(id: string, { force }: { force: boolean }): Promise<void> {
    const { db } = this.#context;
    const row = await hostById(db.query, id);
    if (row === undefined) throw notFound(id);
    if (!force && (await this.#answers(row)))
      throw new AppError('conflict', `host ${id} is not lost: it answers`, {
        hint: 'Drain it to take it out of service, or pass ?force=true: what runs there is destroyed then.',
      });
    if (!(await db.transaction((tx) => loseHost(tx, id, this.#runRetentionMs)))) throw notFound(id);
  }

  async #answers(row: HostRow): Promise<boolean> {
    try {
      await this.#ask(row);
      return true;
    } catch {
      return false; // whatever it is, it is not well
    }
  }

  async #ask(row: HostRow) {
    const { sealer, tls } = this.#context;
    await using client = new HostClient({ id: row.id, url: row.url, token: openHostToken(sealer, row), tls });
    return await withDeadline(PROBE_MS, `host ${row.id}`, (signal) => client.heartbeat(signal));
  }

  async remove(id: string): Promise<void> {
    await this.#context.db.transaction(async (tx) => {
      if ((await lockHost(tx, id)) === undefined) throw notFound(id);
      const environments = await countOnHost(tx, id);
      if (environments > 0)
        throw new AppError(
          'conflict',
          `host ${id} has ${environments} ${environments === 1 ? 'environment' : 'environments'}`,
          {
            hint: 'Drain it and destroy or wait for its environments; of one that does not come back, declare it lost first.',
          },
        );
      await loseSnapshots(tx, id);
      await deleteHost(tx, id);
    });
  }

  /** Rejects when there are hosts, and none of them was heard of within `staleMs`. Before the first one joins all is well. */
  async checkFleet(staleMs: number): Promise<void> {
    const { rows } = await sql<{ hosts: number; heard: number }>`
      select count(*)::int as hosts, count(*) filter (where last_seen > now() - ${staleMs}::float8 * interval '1 millisecond')::int as heard
      from hosts where lost_at is null`.execute(this.#context.db.query);
    const [{ hosts, heard } = { hosts: 0, heard: 0 }] = rows;
    if (hosts > 0 && heard === 0) throw new Error(`none of ${hosts} hosts is reachable`);
  }
}

const notFound = (id: string) => new AppError('not_found', `host ${id} not found`);
