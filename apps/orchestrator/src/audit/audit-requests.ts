/**
 * One entry of the audit log for each call of a route that may change something, refused ones too. It is written when the answer is known and before the
 * answer is sent: whoever has an answer finds its entry. A call whose process dies before that may have changed something and has none.
 */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { actionOf } from '../http/action-constraint.ts';
import type { Caller } from '../http/authentication.ts';
import { NOBODY } from '../http/authentication.ts';
import type { App } from '../http/http-server.ts';
import type { AuditSink, NewAuditEntry } from './audit-log.ts';

const MUTATING: ReadonlySet<string> = new Set(['POST', 'PUT', 'PATCH', 'DELETE']);

/** A call that nobody waits for any more is expected to end by itself by then. */
const UNANSWERED_MS = 60_000;

/** What is said in the answer's body and nowhere else. */
interface Told {
  code?: string;
  made?: string[];
}

export function installAudit(app: App, audit: AuditSink): void {
  const told = new WeakMap<FastifyRequest, Told>();
  const written = new WeakSet<FastifyRequest>();
  const settle = new WeakMap<FastifyRequest, () => void>();
  const write = async (request: FastifyRequest, status: number): Promise<void> => {
    written.add(request);
    await audit.append(entryOf(request, status, told.get(request) ?? {}));
    settle.get(request)?.();
  };

  app.addHook('onRequest', async (request, reply) => {
    if (!isAudited(request)) return;
    audit.expect(new Promise((resolve) => settle.set(request, resolve)));
    // An answer that a route writes by itself, such as a command's output: begun is known.
    reply.raw.once('close', () => {
      if (written.has(request)) return;
      if (reply.raw.headersSent) void write(request, reply.raw.statusCode);
      else setTimeout(() => settle.get(request)?.(), UNANSWERED_MS).unref();
    });
  });
  app.addHook('preSerialization', async (request, reply, payload) => {
    if (isAudited(request)) told.set(request, toldBy(reply, payload));
    return payload;
  });
  app.addHook('onSend', async (request, reply, payload) => {
    if (isAudited(request) && !written.has(request)) await write(request, reply.statusCode);
    return payload;
  });
}

function isAudited({ method, is404, routeOptions: { config } }: FastifyRequest): boolean {
  return MUTATING.has(method) && !is404 && config.audit !== false && config.probe !== true;
}

function toldBy({ statusCode }: FastifyReply, payload: unknown): Told {
  if (typeof payload !== 'object' || payload === null) return {};
  if (statusCode >= 400) return 'error' in payload ? { code: textAt(payload.error, 'code') ?? 'internal' } : {};
  if (statusCode !== 201 && statusCode !== 202) return {};
  const all = 'environments' in payload && Array.isArray(payload.environments) ? payload.environments : [];
  const made = [payload, 'host' in payload ? payload.host : undefined, ...all].flatMap(
    (one) => textAt(one, 'id') ?? [],
  );
  return made.length === 0 ? {} : { made };
}

function textAt(value: unknown, name: string): string | undefined {
  const found: unknown = typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined;
  return typeof found === 'string' ? found : undefined;
}

function entryOf(request: FastifyRequest, status: number, { code, made = [] }: Told): NewAuditEntry {
  const { method, url, routeOptions, params, id, raw } = request;
  const inPath = Object.values((params ?? {}) as Record<string, string>); // as the router gives them
  const target = [...inPath, ...made.filter((one) => !inPath.includes(one))].join('/');
  const action = actionOf(url);
  const suffix = action !== undefined && /^[a-z-]{1,32}$/.test(action) ? `?action=${action}` : '';
  return {
    ...actorOf((request.caller as Caller | undefined) ?? NOBODY), // refused before it was known
    ...(request.auditTenantId === undefined || status === 404 ? {} : { tenant_id: request.auditTenantId }),
    method,
    route: `${method} ${routeOptions.url ?? ''}${suffix}`,
    ...(target === '' ? {} : { target }),
    status,
    ...(code === undefined ? {} : { code }),
    request_id: id,
    ...remoteOf(raw.socket.remoteAddress),
  };
}

export function actorOf({ actorKind, keyId, environmentId, tenantId }: Caller) {
  const actor = keyId ?? environmentId;
  return {
    actor_kind: actorKind,
    ...(actor === undefined ? {} : { actor }),
    ...(tenantId === '' ? {} : { tenant_id: tenantId }),
  };
}

export const remoteOf = (address: string | undefined) => (address === undefined ? {} : { remote: address });
