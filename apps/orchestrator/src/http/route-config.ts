/** What a route says about itself in `config`. */
import type { Scope } from '@fuse/contract';
import type { Caller } from './authentication.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Who may call: anybody, any valid credential (the default), the master token only. */
    auth?: 'none' | 'any' | 'master';
    /** What a key with scopes needs for it, one of several; `exec` and `admin` are refused to plain keys too. The master may everything. */
    scope?: Scope | readonly Scope[];
    /** Below `/v1/environments/{id}`, but nothing of the environment's own: its credential does not reach it. */
    own?: false;
    /** A mutating method that changes nothing: no audit entry. */
    audit?: false;
    /** One of the four operational routes: no authentication, no Server or X-Request-ID header, no log line. */
    probe?: true;
  }
  interface FastifyRequest {
    caller: Caller;
    /** What the call is filed under in the audit log, when that is another tenant than the caller acts in. */
    auditTenantId?: string;
  }
}
