/**
 * The audit log: one entry for every mutating call, refused ones too. Ours.
 *
 *   GET /v1/audit?from&to&actor&target&route&status&limit&cursor (M: every tenant, or Fuse-Tenant's; scope admin: its own) -> ListAudit, newest first
 *   GET /v1/audit?format=ndjson                                  -> all that match, oldest first, an AuditEntry a line
 */
import { z } from 'zod';
import { Timestamp } from './primitives.ts';

export const actorKinds = ['master', 'api_key', 'session', 'environment', 'ticket', 'anonymous'] as const;

export const AuditEntry = z.object({
  id: z.string(),
  at: Timestamp,
  tenant_id: z.string().optional(),
  actor_kind: z.enum(actorKinds),
  /** An API key's id, an environment's id; never a secret. */
  actor: z.string().optional(),
  method: z.string(),
  /** As the router knows it, `POST /v1/environments/:id`; with its action, `?action=fork`. */
  route: z.string(),
  /** The ids in the path, or of what was made. */
  target: z.string().optional(),
  status: z.number().int(),
  /** Of a refusal or failure. */
  code: z.string().optional(),
  request_id: z.string(),
  remote: z.string().optional(),
});
export type AuditEntry = z.infer<typeof AuditEntry>;

export const ListAudit = z.object({ entries: z.array(AuditEntry), next_cursor: z.string().optional() });
export type ListAudit = z.infer<typeof ListAudit>;
