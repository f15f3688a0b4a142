/**
 * `GET /v1/environments/{id}/events`: the current state (and health) at once, or everything after the event that the client saw last; then
 * each transition and change of health, to the end.
 */
import type { FastifyReply } from 'fastify';
import type { Db } from '../db/db.ts';
import type { EnvironmentRow, EventRow } from '../db/schema.ts';
import { type EventHub, eventById, followEvents, lastEvent } from '../events/events.ts';
import { openEventStream } from '../http/event-stream.ts';
import { isGone, parseEventId, toEnvironmentEvent } from './environment.ts';
import type { EnvironmentService } from './environment-service.ts';

export interface EventRequest {
  tenantId: string;
  id: string;
  lastEventId: string | undefined;
}

export class EnvironmentEvents {
  readonly #db: Db;
  readonly #hub: EventHub;
  readonly #environments: EnvironmentService;

  constructor(db: Db, hub: EventHub, environments: EnvironmentService) {
    this.#db = db;
    this.#hub = hub;
    this.#environments = environments;
  }

  /** Rejects with 404 before the stream begins; afterwards never. */
  async stream(reply: FastifyReply, request: EventRequest): Promise<void> {
    const lastSeen = parseEventId(request.lastEventId);
    const { uid } = await this.#subject(request, lastSeen);
    const current = lastSeen === undefined ? await this.#current(uid) : [];
    const afterId = lastSeen ?? current.at(-1)?.id ?? 0;
    const stream = openEventStream(reply);
    try {
      const subject = { kind: 'environment', id: uid, afterId } as const;
      for await (const row of startingWith(current, followEvents(this.#hub, this.#db, subject, stream.signal))) {
        const event = toEnvironmentEvent(row);
        await stream.send({ id: event.id, data: event });
        if (isGone(event.state)) break;
      }
    } catch (error) {
      if (!stream.signal.aborted) reply.log.warn({ err: error, environment: request.id }, 'event stream cut');
    } finally {
      stream.close();
    }
  }

  /** Its state, and its health when that was told since. */
  async #current(uid: string): Promise<EventRow[]> {
    const state = await lastEvent(this.#db.query, 'environment', uid, 'state');
    const latest = await lastEvent(this.#db.query, 'environment', uid);
    const events = [state, latest].filter((event) => event !== undefined);
    return state?.id === latest?.id ? events.slice(0, 1) : events;
  }

  /** The live environment of this id, or the gone one that the client was listening to when it lost the stream. */
  async #subject({ tenantId, id }: EventRequest, lastSeen: number | undefined): Promise<Pick<EnvironmentRow, 'uid'>> {
    try {
      return await this.#environments.find(tenantId, id);
    } catch (error) {
      const seen = lastSeen === undefined ? undefined : await eventById(this.#db.query, 'environment', lastSeen);
      const former = seen === undefined ? undefined : await this.#environments.get(this.#db.query, seen.subject_id);
      if (former === undefined || former.id !== id || former.tenant_id !== tenantId) throw error;
      return former;
    }
  }
}

async function* startingWith(first: readonly EventRow[], rest: AsyncGenerator<EventRow>): AsyncGenerator<EventRow> {
  yield* first;
  yield* rest;
}
