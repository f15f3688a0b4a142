/** `POST /login` and `/logout` (api.md 1.2). Without a master token nobody logs in: both answer 204 and do nothing. */
import { AppError, Login, SESSION_COOKIE, SESSION_SECONDS } from '@fuse/contract';
import type { FastifyRequest } from 'fastify';
import { MASTER_IN_SESSION, sessionSecret } from '../http/callers.ts';
import type { App } from '../http/http-server.ts';
import { requireSameOrigin } from '../http/same-origin.ts';
import type { LoginAttempts } from './login-attempts.ts';
import type { SessionService } from './session-service.ts';

const config = { auth: 'none' } as const;
const LOGIN_BODY_LIMIT_BYTES = 4_096;

export interface SessionParts {
  /** Undefined: there is no master token. */
  sessions: SessionService | undefined;
  /** Whether cookies are for TLS alone; undefined: when the request, or `publicUrl`, is of TLS. */
  secureCookies: boolean | undefined;
  publicUrl: string | undefined;
  attempts: LoginAttempts;
}

export function registerSessionRoutes(app: App, { sessions, secureCookies, publicUrl, attempts }: SessionParts): void {
  const cookie = (request: FastifyRequest, value: string, seconds: number): string => {
    const isSecure = secureCookies ?? (request.protocol === 'https' || publicUrl?.startsWith('https:') === true);
    return `${SESSION_COOKIE}=${value}; Path=/; Max-Age=${seconds}; HttpOnly; SameSite=Lax${isSecure ? '; Secure' : ''}`;
  };

  app.post(
    '/login',
    {
      config,
      bodyLimit: LOGIN_BODY_LIMIT_BYTES,
      schema: { body: Login },
      // Before the body is read.
      onRequest: async (_request, reply) => (sessions === undefined ? reply.code(204).send() : undefined),
    },
    async (request, reply) => {
      const attempt = attempts.begin(request.raw.socket.remoteAddress);
      const secret = await sessions?.begin(request.body.token);
      if (secret === undefined) throw new AppError('unauthorized', 'invalid token');
      attempt.succeeded();
      request.caller = MASTER_IN_SESSION; // for the audit log
      return reply
        .code(204)
        .header('Set-Cookie', cookie(request, secret, SESSION_SECONDS))
        .send();
    },
  );

  app.post('/logout', { config }, async (request, reply) => {
    const secret = sessionSecret(request.headers.cookie);
    if (secret !== undefined) {
      requireSameOrigin(request.headers, publicUrl);
      if (await sessions?.end(secret)) request.caller = MASTER_IN_SESSION;
    }
    return reply
      .code(204)
      .header('Set-Cookie', cookie(request, '', 0))
      .send();
  });
}
