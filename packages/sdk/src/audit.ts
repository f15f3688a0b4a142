import { AuditEntry } from '@fuse/contract';
import { z } from 'zod';
import { CutStreamError, FuseError } from './errors.ts';
import { jsonLines } from './json-lines.ts';
import { ALL_PAGES_LIMIT, allPages, listOf, nextCursor } from './pages.ts';
import type { CallOptions } from './run-outputs.ts';
import { STALL_MS } from './sleep.ts';
import type { Query, Transport } from './transport.ts';
import { timeText } from './usage.ts';

/** All that are given must match. */
export interface AuditFilter {
  /** RFC 3339, or a Date. */
  from?: Date | string | undefined;
  to?: Date | string | undefined;
  actor?: string | undefined;
  target?: string | undefined;
  route?: string | undefined;
  status?: number | undefined;
}

export interface ListAuditOptions extends AuditFilter, CallOptions {
  limit?: number;
  cursor?: string;
}

const AuditPage = z.object({ entries: listOf(AuditEntry), next_cursor: nextCursor });

const PATH = '/v1/audit';
const queryOf = ({ from, to, actor, target, route, status }: AuditFilter): Query => ({
  from: timeText(from),
  to: timeText(to),
  actor,
  target,
  route,
  status,
});

/** Who changed what: one entry for every call that changes something, refused ones too. */
export class Audit {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** The newest first. All of them: `export` where they are many. */
  list(options: AuditFilter & CallOptions = {}): Promise<AuditEntry[]> {
    return allPages(async (cursor) => {
      const page = await this.listPage({
        ...options,
        limit: ALL_PAGES_LIMIT,
        ...(cursor === undefined ? {} : { cursor }),
      });
      return { items: page.entries, nextCursor: page.nextCursor };
    });
  }

  async listPage(options: ListAuditOptions = {}): Promise<{ entries: AuditEntry[]; nextCursor: string | undefined }> {
    const { limit, cursor, signal } = options;
    const page = await this.#transport.json(AuditPage, {
      method: 'GET',
      path: PATH,
      query: { ...queryOf(options), limit, cursor },
      repeat: 'freely',
      signal,
    });
    return { entries: page.entries, nextCursor: page.next_cursor };
  }

  /** All that match, the oldest first, as they come. One that breaks off is a CutStreamError: `from` the last entry's `at` goes on. */
  async *export(options: AuditFilter & CallOptions = {}): AsyncGenerator<AuditEntry, void> {
    const { signal } = options;
    const query = { ...queryOf(options), format: 'ndjson' };
    const response = await this.#transport.open({ method: 'GET', path: PATH, query, repeat: 'freely', signal });
    if (response.body === null) throw new FuseError('an audit log without a body');
    let lastId: string | undefined;
    try {
      for await (const line of jsonLines(response.body, STALL_MS)) {
        const { data: entry, error } = AuditEntry.safeParse(line);
        if (entry === undefined) throw new FuseError('a line that is no entry of an audit log', { cause: error });
        yield entry;
        lastId = entry.id;
      }
    } catch (cause) {
      if (signal?.aborted) throw signal.reason;
      throw cause instanceof FuseError ? cause : new CutStreamError('the audit log', lastId, cause);
    }
  }
}
