/** What a route says about itself in `config`. */
import type { Caller } from './authentication.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Who may call: anybody, any valid credential (the default), the master token only. */
    auth?: 'none' | 'any' | 'master';
    /** One of the four operational routes: no authentication, no Server or X-Request-ID header, no log line. */
    probe?: true;
  }
  interface FastifyRequest {
    caller: Caller;
  }
}
