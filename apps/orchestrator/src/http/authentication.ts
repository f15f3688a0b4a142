/** Bearer authentication (api.md 0.4), before the body is read and before anything is looked up. */

import { createHash, timingSafeEqual } from 'node:crypto';
import { AppError, type actorKinds, DEFAULT_TENANT, type Scope } from '@fuse/contract';
import type { App } from './http-server.ts';
import './route-config.ts';

export interface Caller {
  /** Whose environments, runs and files these are. */
  tenantId: string;
  isMaster: boolean;
  /** `all`: the master. `plain`: an API key without scopes, which has every route but those of the master and of scope `exec` and `admin`. */
  scopes: ReadonlySet<Scope> | 'all' | 'plain';
  /** As the audit log names it. */
  actorKind: (typeof actorKinds)[number];
  /** Of an API key, also when a ticket of its is shown. */
  keyId?: string;
  /** Set for an environment's own credential: it reaches this environment alone. */
  environmentUid?: string;
}

const MASTER: Caller = { tenantId: DEFAULT_TENANT, isMaster: true, scopes: 'all', actorKind: 'master' };
const NOBODY: Caller = { tenantId: '', isMaster: false, scopes: new Set(), actorKind: 'anonymous' };

const digest = (text: string) => createHash('sha256').update(text).digest();

/** Compares in a time that depends on neither token. */
export function sameToken(given: string, expected: string): boolean {
  return timingSafeEqual(digest(given), digest(expected));
}

export function authenticate(authorization: string | undefined, masterToken: string | undefined): Caller {
  if (masterToken === undefined) return MASTER;
  const token = /^Bearer ([^\s]+)$/.exec(authorization ?? '')?.[1];
  if (token === undefined)
    throw new AppError('unauthorized', 'missing or malformed credentials', {
      hint: 'Send the header "Authorization: Bearer <token>".',
    });
  if (!sameToken(token, masterToken)) throw new AppError('unauthorized', 'invalid token');
  return MASTER;
}

export function installAuthentication(app: App, masterToken: string | undefined): void {
  app.decorateRequest('caller');
  app.addHook('onRequest', async (request) => {
    request.caller = NOBODY;
    const { auth = 'any', probe } = request.routeOptions.config;
    if (request.is404 || probe === true || auth === 'none') return;
    request.caller = authenticate(request.headers.authorization, masterToken);
    if (auth === 'master') requireMaster(request.caller);
  });
}

/** Not `forbidden`: published clients look for this code. */
export function requireMaster(caller: Caller): void {
  if (!caller.isMaster) throw new AppError('unauthorized', 'this route needs the master token', { status: 403 });
}
