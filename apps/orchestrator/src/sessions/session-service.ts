/**
 * Browsers that are logged in as the master. The cookie is a random secret, the row has its HMAC under the master token: neither opens anything without the other, and
 * with another master token all sessions are over.
 */
import { randomBytes } from 'node:crypto';
import { SESSION_SECONDS } from '@fuse/contract';
import { announceCredentials, hashOfSession } from '../api-keys/credential-store.ts';
import type { Credentials } from '../api-keys/credentials.ts';
import { type Db, inMs } from '../db/db.ts';
import { sameToken } from '../http/callers.ts';

export class SessionService {
  readonly #db: Db;
  readonly #credentials: Credentials;
  readonly #masterToken: string;

  constructor(db: Db, credentials: Credentials, masterToken: string) {
    this.#db = db;
    this.#credentials = credentials;
    this.#masterToken = masterToken;
  }

  /** The secret of a new session; undefined: this is not the master token. */
  async begin(token: string): Promise<string | undefined> {
    if (!sameToken(token, this.#masterToken)) return undefined;
    const secret = randomBytes(32).toString('base64url');
    await this.#db.query
      .insertInto('sessions')
      .values({ hash: hashOfSession(secret, this.#masterToken), expires_at: inMs(SESSION_SECONDS * 1_000) })
      .execute();
    return secret;
  }

  /** On every replica. False: there was none. */
  async end(secret: string): Promise<boolean> {
    const hash = hashOfSession(secret, this.#masterToken);
    const ended = await this.#db.transaction(async (tx) => {
      await announceCredentials(tx);
      return tx.deleteFrom('sessions').where('hash', '=', hash).returning('hash').executeTakeFirst();
    });
    await this.#credentials.refresh();
    return ended !== undefined;
  }
}
