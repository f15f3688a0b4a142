/**
 * `GET /v1/environments/{id}/events`: the current state (and health) at once, or everything after the event that the client saw last; then
 * each transition, step of its start and change of health, to the end. Where that event is not known, the current state says so (`reset`).
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

  /** Rejects with 404 before the stream begins; afterwards never. Of one that failed: its end. */
  async stream(reply: FastifyReply, request: EventRequest): Promise<void> {
    const isAsked = request.lastEventId !== undefined && request.lastEventId !== '';
    const id = parseEventId(request.lastEventId);
    const given = id === undefined ? undefined : await eventById(this.#db.query, 'environment', id);
    const { uid, state } = await this.#subject(request, given);
    const lastSeen = given?.subject_id === uid ? given : undefined;
    const current = lastSeen === undefined ? await this.#current(uid) : [];
    const afterId = lastSeen?.id ?? current.at(-1)?.id ?? 0;
    const stream = openEventStream(reply);
    try {
      if (lastSeen !== undefined && isGone(toEnvironmentEvent(lastSeen).state)) return; // nothing comes after it
      if (isGone(state) && lastSeen === undefined && current.length === 0) return; // so long ago that its events are gone
      const subject = { kind: 'environment', id: uid, afterId } as const;
      let isReset = isAsked && lastSeen === undefined;
      for await (const row of startingWith(current, followEvents(this.#hub, this.#db, subject, stream.signal))) {
        const event = toEnvironmentEvent(row);
        await stream.send({ id: event.id, data: isReset ? { ...event, event: 'reset' } : event });
        if (isGone(event.state)) break;
        isReset = false;
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
    const health = await lastEvent(this.#db.query, 'environment', uid, 'health');
    if (state === undefined) return [];
    return health === undefined || health.id < state.id ? [state] : [state, health];
  }

  /** The live environment of this id; else the gone one that the client was listening to when it lost the stream, or the last one where that failed. */
  async #subject(
    { tenantId, id }: EventRequest,
    seen: EventRow | undefined,
  ): Promise<Pick<EnvironmentRow, 'uid' | 'state'>> {
    const last = await this.#environments.findLast(tenantId, id);
    if (!isGone(last.state)) return last;
    const former = seen === undefined ? undefined : await this.#environments.get(this.#db.query, seen.subject_id);
    if (former?.id === id && former.tenant_id === tenantId) return former;
    return last.state === 'failed' ? last : this.#environments.find(tenantId, id);
  }
}

async function* startingWith(first: readonly EventRow[], rest: AsyncGenerator<EventRow>): AsyncGenerator<EventRow> {
  yield* first;
  yield* rest;
}
