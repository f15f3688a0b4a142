/** Tenants, keys, sessions, the audit log, events of all environments. */
import {
  AuditEntry,
  FleetEvent,
  FleetReset,
  ListApiKeys,
  ListAudit,
  ListTenants,
  Login,
  MintedApiKey,
  Tenant,
  Usage,
  UsageHistory,
} from '@fuse/contract';
import { z } from 'zod';
import { type Operations, resumable, sse } from '../operation.ts';

export const administrationOperations: Operations = {
  'POST /login': { tag: 'keys', summary: 'Begin a session of a browser (cookie)', body: Login, answers: { 204: null } },
  'POST /logout': { tag: 'keys', summary: 'End it', answers: { 204: null } },
  'POST /v1/api-keys': {
    tag: 'keys',
    summary: 'Make an API key; it is shown this once',
    bodyOptional: true,
    answers: { 201: MintedApiKey },
  },
  'GET /v1/api-keys': {
    tag: 'keys',
    summary: 'API keys, newest first, revoked ones too',
    answers: { 200: ListApiKeys },
  },
  'DELETE /v1/api-keys/:id': { tag: 'keys', summary: 'Revoke an API key', answers: { 204: null } },
  'GET /v1/tenants': { tag: 'tenants', summary: 'All tenants, by id', answers: { 200: ListTenants } },
  'POST /v1/tenants': { tag: 'tenants', summary: 'Make a tenant', answers: { 201: Tenant } },
  'GET /v1/tenants/:id': { tag: 'tenants', summary: 'One tenant', answers: { 200: Tenant } },
  'PATCH /v1/tenants/:id': {
    tag: 'tenants',
    summary: 'Change its label, quotas and networks, or disable it',
    answers: { 200: Tenant },
  },
  'DELETE /v1/tenants/:id': {
    tag: 'tenants',
    summary: 'Remove an empty tenant, with its keys',
    answers: { 204: null },
  },
  'GET /v1/usage': { tag: 'tenants', summary: 'What the tenant uses now, beside its quotas', answers: { 200: Usage } },
  'GET /v1/usage/history': { tag: 'tenants', summary: 'What it used, by the hour', answers: { 200: UsageHistory } },
  'GET /v1/audit': {
    tag: 'audit',
    summary: 'Mutating calls, newest first; as JSON lines all that match, oldest first',
    answers: { 200: z.union([ListAudit, AuditEntry]) },
    description: 'With `format=ndjson` the answer is `application/x-ndjson`, an AuditEntry a line.',
  },
  'GET /v1/events': {
    tag: 'events',
    summary: 'What happens to all environments, in the order of its commits',
    headers: resumable,
    answers: { 200: sse(z.union([FleetEvent, FleetReset])) },
  },
};
