/**
 * Who calls, and whether they may: before the body is read and before anything is looked up. `callers.ts` says who a credential is, this file what a
 * route asks for (`config.auth`, `config.scope`) and that what is open ends with its credential.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { AppError, type actorKinds, type Scope } from '@fuse/contract';
import type { FastifyReply, FastifyRequest } from 'fastify';
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
  environmentId?: string;
  /** What it lives and dies with, `api_key:<id>`, `session:<hash>` or `environment:<hash>`; none: the master token, for ever. */
  proof?: string;
}

export interface Authenticator {
  /** From `Authorization`, `Cookie`, `Fuse-Tenant` and, where `isChange`, `Origin`. Throws 401, 403 or 404. */
  authenticate(headers: IncomingHttpHeaders, isChange: boolean): Promise<Caller>;
  /** `cut` is called once, as soon as this proof is good no more. Dispose when there is nothing to cut any more. */
  hold(proof: string, cut: () => void): Disposable;
}

export const NOBODY: Caller = { tenantId: '', isMaster: false, scopes: new Set(), actorKind: 'anonymous' };

/** What has not begun to be answered may still be: the answer to the very request that revoked the key. */
const UNANSWERED_GRACE_MS = 500;
const SAFE_METHODS: readonly string[] = ['GET', 'HEAD', 'OPTIONS'];

export function installAuthentication(app: App, authenticator: Authenticator): void {
  app.decorateRequest('caller');
  app.addHook('onRequest', async (request, reply) => {
    request.caller = NOBODY;
    const { auth, probe } = request.routeOptions.config;
    if (request.is404 || probe === true || auth === 'none') return;
    request.caller = await authenticator.authenticate(request.headers, !SAFE_METHODS.includes(request.method));
    authorize(request);
    const { proof } = request.caller;
    if (proof !== undefined) endWith(reply, (cut) => authenticator.hold(proof, cut));
  });
}

function authorize({ caller, params, routeOptions: { config, url = '' } }: FastifyRequest): void {
  if (config.auth === 'master') requireMaster(caller);
  if (config.scope !== undefined) requireScope(caller, config.scope);
  requireOwnEnvironment(caller, config.own === false ? '' : url, params as Record<string, string>); // as the router gives them
}

function endWith(reply: FastifyReply, hold: (cut: () => void) => Disposable): void {
  const { raw } = reply;
  const cut = () => {
    if (raw.headersSent) raw.destroy();
    else setTimeout(() => raw.writableFinished || raw.destroy(), UNANSWERED_GRACE_MS).unref();
  };
  const held = hold(cut);
  if (raw.destroyed) held[Symbol.dispose]();
  else raw.once('close', () => held[Symbol.dispose]());
}

/** Not `forbidden`: published clients look for this code. */
export function requireMaster(caller: Caller): void {
  if (!caller.isMaster) throw new AppError('unauthorized', 'this route needs the master token', { status: 403 });
}

/** One of them is enough. 403 with code `unauthorized` otherwise. */
export function requireScope({ scopes }: Caller, wanted: Scope | readonly Scope[]): void {
  if (scopes === 'all') return;
  const accepted = [wanted].flat();
  if (scopes === 'plain' ? accepted.some(isPlain) : scopes.has('admin') || accepted.some((scope) => scopes.has(scope)))
    return;
  const scope = accepted.join(' or ');
  throw new AppError('unauthorized', `this needs the scope ${scope}, which the key does not have`, {
    status: 403,
    details: { scope },
    hint: 'The master token, or a key of scope admin, makes keys with scopes: POST /v1/api-keys.',
  });
}

/** What api.md gives every key. */
const isPlain = (scope: Scope): boolean => scope !== 'exec' && scope !== 'admin';

const OWN = '/v1/environments/:id';

/** An environment's own credential reaches that environment alone. */
export function requireOwnEnvironment(
  { environmentId }: Caller,
  route: string,
  params: Readonly<Record<string, string>>,
): void {
  if (environmentId === undefined) return;
  if (route !== OWN && !route.startsWith(`${OWN}/`))
    throw new AppError('unauthorized', 'the credential of an environment reaches that environment alone', {
      status: 403,
    });
  if (params.id !== environmentId) throw new AppError('not_found', `vm ${params.id} not found`);
}
