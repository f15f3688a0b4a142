/**
 * Who a credential is (api.md 0.3, 0.4). The master token first, compared in constant time; then an API key or an environment's own credential, found by its
 * sha256; a session's cookie only where there is no Authorization header at all.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import {
  API_KEY_PREFIX,
  AppError,
  DEFAULT_TENANT,
  ENVIRONMENT_TOKEN_PREFIX,
  type Scope,
  SESSION_COOKIE,
  TENANT_HEADER,
} from '@fuse/contract';
import type { Authenticator, Caller } from './authentication.ts';
import { requireSameOrigin } from './same-origin.ts';

interface Known {
  proof: string;
  tenantId: string;
  isTenantDisabled: boolean;
}

/** What is revoked, expired or gone is not found. */
export interface CredentialSource {
  apiKey(key: string): Promise<(Known & { keyId: string; scopes: readonly Scope[] | null }) | undefined>;
  environment(token: string): Promise<(Known & { environmentUid: string; environmentId: string }) | undefined>;
  /** The proof of a session. */
  session(secret: string): Promise<string | undefined>;
  hasTenant(id: string): Promise<boolean>;
  hold(proof: string, cut: () => void): Disposable;
}

export interface CallersOptions {
  masterToken: string | undefined;
  /** Without a master token: whether everybody is the master, or nobody. */
  isOpen: boolean;
  credentials: CredentialSource;
  publicUrl?: string | undefined;
}

const MASTER: Caller = { tenantId: DEFAULT_TENANT, isMaster: true, scopes: 'all', actorKind: 'master' };
export const MASTER_IN_SESSION: Caller = { ...MASTER, actorKind: 'session' };
const ENVIRONMENT_SCOPES: ReadonlySet<Scope> = new Set<Scope>(['environments:read', 'exec', 'files', 'ports']);

const digest = (text: string) => createHash('sha256').update(text).digest();

/** Compares in a time that depends on neither token. */
export function sameToken(given: string, expected: string): boolean {
  return timingSafeEqual(digest(given), digest(expected));
}

export class Callers implements Authenticator {
  readonly #options: CallersOptions;

  constructor(options: CallersOptions) {
    this.#options = options;
  }

  async authenticate(headers: IncomingHttpHeaders, isChange: boolean): Promise<Caller> {
    const caller = await this.#who(headers);
    if (isChange && isSentByBrowsers(headers)) requireSameOrigin(headers, this.#options.publicUrl);
    return this.#inTenant(caller, headers[TENANT_HEADER.toLowerCase()]);
  }

  hold(proof: string, cut: () => void): Disposable {
    return this.#options.credentials.hold(proof, cut);
  }

  async #who({ authorization, cookie }: IncomingHttpHeaders): Promise<Caller> {
    const { masterToken, isOpen } = this.#options;
    if (masterToken === undefined && isOpen) return MASTER;
    const caller =
      authorization === undefined
        ? await this.#ofSession(sessionSecret(cookie) ?? missing())
        : await this.#ofToken(/^Bearer ([^\s]+)$/.exec(authorization)?.[1] ?? missing());
    if (caller === undefined) throw new AppError('unauthorized', 'invalid token');
    return caller;
  }

  async #ofToken(token: string): Promise<Caller | undefined> {
    const { masterToken, credentials } = this.#options;
    if (masterToken !== undefined && sameToken(token, masterToken)) return MASTER;
    if (token.startsWith(API_KEY_PREFIX)) {
      const key = await credentials.apiKey(token);
      if (key === undefined) return undefined;
      const { keyId, proof } = key;
      const scopes = key.scopes === null || key.scopes.length === 0 ? 'plain' : new Set(key.scopes);
      return { tenantId: enabled(key), isMaster: false, scopes, actorKind: 'api_key', keyId, proof };
    }
    if (token.startsWith(ENVIRONMENT_TOKEN_PREFIX)) {
      const environment = await credentials.environment(token);
      if (environment === undefined) return undefined;
      const { environmentUid, environmentId, proof } = environment;
      const own = { environmentUid, environmentId, proof, scopes: ENVIRONMENT_SCOPES };
      return { tenantId: enabled(environment), isMaster: false, actorKind: 'environment', ...own };
    }
    return undefined;
  }

  async #ofSession(secret: string): Promise<Caller | undefined> {
    const proof = await this.#options.credentials.session(secret);
    return proof === undefined ? undefined : { ...MASTER_IN_SESSION, proof };
  }

  async #inTenant(caller: Caller, tenant: string | string[] | undefined): Promise<Caller> {
    if (tenant === undefined || tenant === caller.tenantId) return caller;
    if (!caller.isMaster)
      throw new AppError('unauthorized', `${TENANT_HEADER}: only the master acts in another tenant`, { status: 403 });
    if (typeof tenant !== 'string' || !(await this.#options.credentials.hasTenant(tenant)))
      throw new AppError('not_found', `tenant ${String(tenant)} not found`, { details: { field: TENANT_HEADER } });
    return { ...caller, tenantId: tenant };
  }
}

/** By themselves, whichever page asks: a cookie, or nothing that matters where nothing is needed. */
const isSentByBrowsers = ({ authorization }: IncomingHttpHeaders): boolean =>
  authorization === undefined || !authorization.startsWith('Bearer ');

function missing(): never {
  throw new AppError('unauthorized', 'missing or malformed credentials', {
    hint: 'Send the header "Authorization: Bearer <token>".',
  });
}

function enabled({ tenantId, isTenantDisabled }: Known): string {
  if (isTenantDisabled) throw new AppError('forbidden', `tenant ${tenantId} is disabled`);
  return tenantId;
}

/** Undefined: there is no such cookie. */
export function sessionSecret(cookie: string | undefined): string | undefined {
  for (const part of (cookie ?? '').split(';')) {
    const [name, ...value] = part.trim().split('=');
    if (name === SESSION_COOKIE) return value.join('=');
  }
  return undefined;
}
