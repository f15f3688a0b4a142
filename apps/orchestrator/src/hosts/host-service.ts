/** Registering, listing and taking hosts out of service. */
import { AppError, type Host, invalidField, type RegisterHost } from '@fuse/contract';
import type { HostCapacityReport, HostImage } from '@fuse/host-protocol';
import { sql } from 'kysely';
import type { Db } from '../db/db.ts';
import type { HostRow } from '../db/schema.ts';
import { countOnHost, usedByHost } from '../environments/environment-store.ts';
import type { Capacity } from '../scheduling/schedule.ts';
import type { Sealer } from '../secrets/sealer.ts';
import { loseHost } from '../snapshots/lost-snapshots.ts';
import { checkHostUrl, declaredArch, fillCapacity } from './host.ts';
import { HostClient } from './host-client.ts';
import { deleteHost, hostById, listHosts, setHostState, upsertHost } from './host-store.ts';
import { isHostUnreachable, isTokenRefused } from './host-transport.ts';

const NOTHING: Capacity = { cpus: 0, ram_mb: 0, storage_gb: 0, vm_count: 0 };

interface Probe {
  report: HostCapacityReport;
  images: HostImage[];
}

export class HostService {
  readonly #db: Db;
  readonly #sealer: Sealer;

  constructor(db: Db, sealer: Sealer) {
    this.#db = db;
    this.#sealer = sealer;
  }

  /** `POST /v1/hosts`: replaces what was registered under this id. Warnings say where the declaration and the host disagree. */
  async register(request: RegisterHost): Promise<Host> {
    return this.#register(request, 'replace');
  }

  /** What a host's own process does each time it starts: its age, and a cordon, stay. */
  async refresh(request: RegisterHost): Promise<Host> {
    return this.#register(request, 'refresh');
  }

  async #register(request: RegisterHost, mode: 'replace' | 'refresh'): Promise<Host> {
    checkHostUrl(request.url);
    const arch = declaredArch(request);
    const warnings: string[] = [];
    const probe = await this.#probe(request, warnings);
    if (arch !== undefined && probe !== undefined && probe.report.arch !== arch)
      throw invalidField('capacity.arch', `declared ${arch}, the host is ${probe.report.arch}`);
    const capacity = fillCapacity(request, probe?.report, warnings);
    const row = await this.#db.transaction((tx) =>
      upsertHost(
        tx,
        this.#sealer,
        {
          id: request.id,
          url: request.url,
          token: request.token || null,
          region: request.region || null,
          backend: probe?.report.backend ?? (request.backend || 'firecracker'),
          arch: probe?.report.arch ?? arch ?? 'amd64',
          labels: request.labels ?? {},
          capacity,
          images: probe?.images ?? [],
        },
        mode,
      ),
    );
    const used = await usedByHost(this.#db.query);
    return { ...toHost(row, used.get(row.id)), ...(warnings.length === 0 ? {} : { warnings }) };
  }

  /** Undefined, with a warning, when the host cannot be asked but everything was declared. */
  async #probe(request: RegisterHost, warnings: string[]): Promise<Probe | undefined> {
    await using client = new HostClient({ id: request.id, url: request.url, token: request.token || null });
    try {
      const [report, images] = await Promise.all([client.capacity(), client.images()]);
      return { report, images };
    } catch (error) {
      if (isTokenRefused(error))
        throw new AppError('unauthorized', 'the host agent refuses this token', { status: 502, cause: error });
      const { cpus, ram_mb, storage_gb } = request.capacity ?? {};
      const why = error instanceof Error ? error.message : String(error);
      if (!cpus || !ram_mb || !storage_gb)
        throw new AppError('unavailable', `could not verify host agent at ${request.url}: ${why}`, {
          status: 502,
          cause: error,
          hint: isHostUnreachable(error)
            ? 'Start the host agent first, or declare its whole capacity.'
            : 'See the host agent’s log.',
        });
      warnings.push(`could not verify host agent at ${request.url} (${why}); registering with declared capacity`);
      return undefined;
    }
  }

  async list(afterId: string | undefined, limit: number): Promise<Host[]> {
    const used = await usedByHost(this.#db.query);
    return (await listHosts(this.#db.query, afterId, limit)).map((row) => toHost(row, used.get(row.id)));
  }

  async get(id: string): Promise<Host> {
    const row = await hostById(this.#db.query, id);
    if (row === undefined) throw notFound(id);
    return toHost(row, (await usedByHost(this.#db.query)).get(id));
  }

  async setState(id: string, state: 'active' | 'cordoned'): Promise<void> {
    if (!(await this.#db.transaction((tx) => setHostState(tx, id, state)))) throw notFound(id);
  }

  async remove(id: string): Promise<void> {
    await this.#db.transaction(async (tx) => {
      // Held until the end: no admission can choose it meanwhile.
      const row = await tx.selectFrom('hosts').select('id').where('id', '=', id).forUpdate().executeTakeFirst();
      if (row === undefined) throw notFound(id);
      const environments = await countOnHost(tx, id);
      if (environments > 0)
        throw new AppError('conflict', `host ${id} has ${environments} environments`, {
          hint: 'Cordon it and destroy or wait for its environments first.',
        });
      await loseHost(tx, id);
      await deleteHost(tx, id);
    });
  }

  /** Rejects when no registered host was heard of within `staleMs`. */
  async checkFleet(staleMs: number): Promise<void> {
    const { rows } =
      await sql`select 1 from hosts where last_seen > now() - ${staleMs}::float8 * interval '1 millisecond' limit 1`.execute(
        this.#db.query,
      );
    if (rows.length === 0) throw new Error('no host is reachable');
  }
}

const notFound = (id: string) => new AppError('not_found', `host ${id} not found`);

function toHost(row: HostRow, used: Capacity = NOTHING): Host {
  const { cpus, ram_mb, storage_gb, vm_count } = row;
  return {
    id: row.id,
    url: row.url,
    state: row.state,
    capacity: { cpus, ram_mb, storage_gb, vm_count, arch: row.arch },
    allocated: used,
    ...(row.region === null ? {} : { region: row.region }),
    backend: row.backend,
    ...(Object.keys(row.labels).length === 0 ? {} : { labels: row.labels }),
    last_seen: row.last_seen.toISOString(),
    created_at: row.created_at.toISOString(),
    updated_at: row.updated_at.toISOString(),
  };
}
