/** `GET /v1/events`: what happens to all environments of a tenant, or of all tenants, from now on or after the event that the client saw last. */
import type { FleetEvent, FleetReset } from '@fuse/contract';
import type { FastifyReply } from 'fastify';
import type { Db } from '../db/db.ts';
import { toEnvironmentEvent } from '../environments/environment.ts';
import { openEventStream } from '../http/event-stream.ts';
import { formatPosition, isUnbroken, lastInOrder, type Position, parsePosition } from './event-order.ts';
import type { FedEvent, FleetFeed } from './fleet-feed.ts';

export interface FleetRequest {
  /** Undefined: all tenants. */
  tenantId: string | undefined;
  lastEventId: string | undefined;
}

export class FleetEvents {
  readonly #db: Db;
  readonly #feed: FleetFeed;
  readonly #keptMs: number;

  /** `keptMs`: how long events are kept at least. */
  constructor(db: Db, feed: FleetFeed, keptMs: number) {
    this.#db = db;
    this.#feed = feed;
    this.#keptMs = keptMs;
  }

  async stream(reply: FastifyReply, { tenantId, lastEventId }: FleetRequest): Promise<void> {
    const asked = lastEventId === undefined || lastEventId === '' ? undefined : lastEventId;
    const known = asked === undefined ? undefined : await this.#known(asked);
    const from = known ?? (await lastInOrder(this.#db.query));
    const stream = openEventStream(reply);
    try {
      // Before the first event: where a client goes on that loses the stream until then.
      const id = formatPosition(from);
      if (asked === undefined) await stream.send({ id });
      else if (known === undefined) await stream.send({ id, data: resetAt(id) });
      for await (const event of this.#feed.follow(from, tenantId, stream.signal)) {
        const data = toFleetEvent(event);
        await stream.send({ id: data.id, data });
      }
    } catch (error) {
      if (!stream.signal.aborted) reply.log.warn({ err: error }, 'stream of all events cut');
    } finally {
      stream.close();
    }
  }

  async #known(lastEventId: string): Promise<Position | undefined> {
    const position = parsePosition(lastEventId);
    if (position === undefined) return undefined;
    return (await isUnbroken(this.#db.query, position, this.#keptMs)) ? position : undefined;
  }
}

const resetAt = (id: string): FleetReset => ({ id, event: 'reset', updated_at: new Date().toISOString() });

const toFleetEvent = ({ position, row }: FedEvent): FleetEvent => ({
  ...toEnvironmentEvent(row),
  id: formatPosition(position),
  tenant_id: row.tenant_id ?? '',
});
