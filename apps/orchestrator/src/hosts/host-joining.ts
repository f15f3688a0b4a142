/**
 * Hosts that register themselves (contract/src/host.ts). Who shows a join token brings a new host, or one that still has the token it had; who shows a host's own token is that host.
 * Of join tokens the database has the sha256. A use is taken in the transaction that registers the host.
 */
import { createHash, randomBytes } from 'node:crypto';
import {
  AppError,
  type Host,
  JOIN_TOKEN_PREFIX,
  type JoinedHost,
  type JoinHost,
  type JoinToken,
  type JoinTokenRequest,
} from '@fuse/contract';
import { sql } from 'kysely';
import { type Db, inMs, jsonb, now, type Queryable, type Tx } from '../db/db.ts';
import type { HostRow } from '../db/schema.ts';
import { sameToken } from '../http/callers.ts';
import type { IdempotentRequest } from '../idempotency/idempotency-key.ts';
import { makeSecretOnce } from '../idempotency/make-once.ts';
import type { Sealer } from '../secrets/sealer.ts';
import type { HostService } from './host-service.ts';
import { hostById, lockHost, openHostToken } from './host-store.ts';

const DEFAULT_LIFETIME_SECONDS = 3_600;

export interface HostJoiningParts {
  db: Db;
  sealer: Sealer;
  hosts: HostService;
  clusterTag: string;
}

export class HostJoining {
  readonly #parts: HostJoiningParts;

  constructor(parts: HostJoiningParts) {
    this.#parts = parts;
  }

  async mint(
    { expires_in_seconds, uses = 1, region, labels = {} }: JoinTokenRequest,
    idempotent?: IdempotentRequest,
  ): Promise<{ answer: JoinToken; replayed: boolean }> {
    const token = `${JOIN_TOKEN_PREFIX}${randomBytes(32).toString('base64url')}`;
    const make = async (tx: Tx): Promise<JoinToken> => {
      await tx.deleteFrom('join_tokens').where('expires_at', '<', now).execute();
      const { expires_at } = await tx
        .insertInto('join_tokens')
        .values({
          hash: hashOf(token),
          uses,
          region: region || null,
          labels: jsonb(labels),
          expires_at: inMs((expires_in_seconds ?? DEFAULT_LIFETIME_SECONDS) * 1_000),
        })
        .returning('expires_at')
        .executeTakeFirstOrThrow();
      return { token, expires_at: expires_at.toISOString(), uses };
    };
    const { db, sealer } = this.#parts;
    return makeSecretOnce(db, sealer, idempotent, { resourceId: hashOf(token).toString('hex'), make });
  }

  /** 401 without a good token, 409 when the id is another host's. */
  async join(authorization: string | undefined, request: JoinHost): Promise<JoinedHost> {
    const bearer = /^Bearer ([^\s]+)$/.exec(authorization ?? '')?.[1];
    if (bearer === undefined)
      throw new AppError('unauthorized', 'missing or malformed credentials', {
        hint: 'Send the header "Authorization: Bearer <join token>".',
      });
    const host = bearer.startsWith(JOIN_TOKEN_PREFIX)
      ? await this.#joinByToken(bearer, request)
      : await this.#joinAgain(bearer, request);
    return { host, cluster_tag: this.#parts.clusterTag };
  }

  async #joinByToken(token: string, request: JoinHost): Promise<Host> {
    const { db, hosts } = this.#parts;
    const hash = hashOf(token);
    const found = await usable(db.query, hash);
    if (found === undefined) throw refused();
    this.#requireSame(await hostById(db.query, request.id), request);
    const region = request.region || (found.region ?? undefined);
    const labels = { ...request.labels, ...found.labels };
    return hosts.join({ ...request, region, labels }, async (tx) => {
      await takeUse(tx, hash);
      this.#requireSame(await lockHost(tx, request.id), request);
    });
  }

  async #joinAgain(token: string, request: JoinHost): Promise<Host> {
    const { db, hosts } = this.#parts;
    const isHost = (row: HostRow | undefined): row is HostRow => row !== undefined && this.#isTokenOf(row, token);
    const row = await hostById(db.query, request.id);
    if (!isHost(row)) throw refused();
    const region = request.region || (row.region ?? undefined);
    const labels = { ...row.labels, ...request.labels };
    return hosts.join({ ...request, region, labels }, async (tx) => {
      if (!isHost(await lockHost(tx, request.id))) throw refused();
    });
  }

  #requireSame(row: HostRow | undefined, { id, token }: JoinHost): void {
    if (row === undefined || this.#isTokenOf(row, token)) return;
    throw new AppError('conflict', `host ${id} exists already, with another token`, {
      details: { field: 'id' },
      hint: 'Give this host agent another FUSE_HOST_ID, or remove the host that has it.',
    });
  }

  #isTokenOf(row: HostRow, token: string): boolean {
    const expected = openHostToken(this.#parts.sealer, row);
    return expected !== null && sameToken(token, expected);
  }
}

const hashOf = (token: string): Buffer => createHash('sha256').update(token).digest();

const refused = () =>
  new AppError('unauthorized', 'this token lets no host join', {
    hint: 'A join token may have expired or been used up; the token of a host that joined before is refused when that host was removed. Either way: make another join token.',
  });

function usable(db: Queryable, hash: Buffer) {
  return db
    .selectFrom('join_tokens')
    .selectAll()
    .where('hash', '=', hash)
    .where('uses', '>', 0)
    .where('expires_at', '>', now)
    .executeTakeFirst();
}

async function takeUse(tx: Tx, hash: Buffer): Promise<void> {
  const row = await tx
    .updateTable('join_tokens')
    .set({ uses: sql<number>`uses - 1` })
    .where('hash', '=', hash)
    .where('uses', '>', 0)
    .where('expires_at', '>', now)
    .returning('uses')
    .executeTakeFirst();
  if (row === undefined) throw refused();
}
