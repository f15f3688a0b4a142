/** Bearer authentication (api.md 0.4), before the body is read and before anything is looked up. */

import { createHash, timingSafeEqual } from 'node:crypto';
import { AppError } from '@fuse/contract';
import type { App } from './http-server.ts';
import './route-config.ts';

export interface Caller {
  /** Whose environments, runs and files these are. */
  tenantId: string;
  isMaster: boolean;
}

const MASTER: Caller = { tenantId: 'default', isMaster: true };
const NOBODY: Caller = { tenantId: '', isMaster: false };

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
