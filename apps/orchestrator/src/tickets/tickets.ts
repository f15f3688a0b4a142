/**
 * Tickets open one WebSocket each, for what they are for, without any other credential (contract's attach.ts). The database keeps their hash alone. A ticket is spent
 * by whatever is tried with it. It may what it was made for and nothing else, and dies with the credential of whoever asked for it, as does what it opened.
 */
import { createHash, randomBytes } from 'node:crypto';
import {
  AppError,
  invalidField,
  type Scope,
  TICKET_DEFAULT_SECONDS,
  type Ticket,
  type TicketRequest,
} from '@fuse/contract';
import { sql } from 'kysely';
import { goodProofs, keyIdOf } from '../api-keys/credential-store.ts';
import { type Db, inMs, jsonb, now, type Tx } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';
import type { Caller } from '../http/authentication.ts';
import type { IdempotentRequest } from '../idempotency/idempotency-key.ts';
import { makeSecretOnce } from '../idempotency/make-once.ts';
import type { Sealer } from '../secrets/sealer.ts';

export type TicketPurpose = Pick<TicketRequest, 'for' | 'session' | 'port'>;

const hashOf = (ticket: string) => createHash('sha256').update(ticket).digest();

export class Tickets {
  readonly #db: Db;
  readonly #sealer: Sealer;

  constructor(db: Db, sealer: Sealer) {
    this.#db = db;
    this.#sealer = sealer;
  }

  /** With a key: the same ticket, however often it is asked for, and however long ago it was spent. */
  async issue(
    environment: EnvironmentRow,
    request: TicketRequest,
    issuer: Caller,
    idempotent?: IdempotentRequest,
  ): Promise<{ answer: Ticket; replayed: boolean }> {
    const purpose = purposeOf(request);
    const ticket = `ticket_${randomBytes(32).toString('base64url')}`;
    const make = async (tx: Tx): Promise<Ticket> => {
      await tx.deleteFrom('tickets').where('expires_at', '<', now).execute();
      const { expires_at } = await tx
        .insertInto('tickets')
        .values({
          hash: hashOf(ticket),
          tenant_id: environment.tenant_id,
          environment_uid: environment.uid,
          purpose: jsonb(purpose),
          proof: issuer.proof ?? null,
          expires_at: inMs((request.ttl_seconds ?? TICKET_DEFAULT_SECONDS) * 1_000),
        })
        .returning('expires_at')
        .executeTakeFirstOrThrow();
      return { ticket, expires_at: expires_at.toISOString() };
    };
    return makeSecretOnce(this.#db, this.#sealer, idempotent, { resourceId: environment.uid, make });
  }

  /** For what is about to be opened in environment `id`. 401 unless it was issued for that, is in time and was not used before. */
  async redeem(ticket: string, id: string, wanted: TicketPurpose): Promise<Caller> {
    const spent = await this.#db.query
      .deleteFrom('tickets')
      .using('environments')
      .whereRef('environments.uid', '=', 'tickets.environment_uid')
      .where('tickets.hash', '=', hashOf(ticket))
      .returning([
        'tickets.tenant_id',
        'tickets.purpose',
        'tickets.proof',
        'environments.id',
        sql<boolean>`tickets.expires_at > now()`.as('is_in_time'),
      ])
      .executeTakeFirst();
    const isGood =
      spent?.is_in_time === true &&
      spent.id === id &&
      allows(spent.purpose, wanted) &&
      (spent.proof === null || (await goodProofs(this.#db.query, [spent.proof])).has(spent.proof));
    if (!isGood)
      throw new AppError('unauthorized', 'invalid, expired or used ticket', {
        hint: `POST /v1/environments/{id}/tickets gives a fresh one; it opens one socket, for what it was made for.`,
      });
    const keyId = spent.proof === null ? undefined : keyIdOf(spent.proof);
    return {
      tenantId: spent.tenant_id,
      isMaster: false,
      scopes: new Set([scopeOfTicket(spent.purpose)]),
      actorKind: 'ticket',
      ...(keyId === undefined ? {} : { keyId }),
      ...(spent.proof === null ? {} : { proof: spent.proof }),
    };
  }
}

export const scopeOfTicket = ({ for: what }: Pick<TicketRequest, 'for'>): Scope => (what === 'port' ? 'ports' : 'exec');

function purposeOf({ for: what, session, port }: TicketRequest): TicketPurpose {
  if (what === 'exec' && session === undefined) throw invalidField('session', 'is required for an exec');
  if (what === 'port' && port === undefined) throw invalidField('port', 'is required for a port');
  return {
    for: what,
    ...(what === 'port' || session === undefined ? {} : { session }),
    ...(what !== 'port' || port === undefined ? {} : { port }),
  };
}

function allows(purpose: TicketPurpose, wanted: TicketPurpose): boolean {
  if (purpose.for !== wanted.for || purpose.port !== wanted.port) return false;
  return purpose.session === undefined || purpose.session === wanted.session;
}
