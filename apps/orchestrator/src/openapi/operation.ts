/** What a route's own schemas do not say: its summary, its answers, bodies that are no JSON object of one schema, and what it switches to. */
import type { ZodType } from 'zod';

export const tags = {
  environments: 'MicroVMs and their tasks',
  exec: 'Commands, terminals and processes in an environment',
  'files in environments': 'The file system of an environment',
  ports: 'Connections to ports of an environment',
  runs: 'One-shot tasks: code in, result and outputs out',
  uploads: 'Files that runs are given',
  snapshots: 'Memory and disk of an environment, kept',
  hosts: 'Machines that VMs run on',
  images: 'Root file systems',
  events: 'What happened, as it happens',
  tenants: 'Customers, their quotas and their use',
  keys: 'API keys and sessions of browsers',
  audit: 'Who changed what',
  operations: 'Probes, metrics, this document',
} as const;
export type Tag = keyof typeof tags;

/** Null: no body. A schema alone is JSON. */
export type Content = ZodType | { type: string; schema?: ZodType } | null;

export interface Operation {
  tag: Tag;
  summary: string;
  description?: string;
  answers: Readonly<Record<number, Content>>;
  /** In place of the route's body schema. */
  body?: Content;
  /** The body may be left out. */
  bodyOptional?: true;
  /** Of `?action=`: the body of each, where its route does not say it; null: none. */
  actions?: Readonly<Record<string, Content>>;
  /** Query parameters that the route reads without a schema. */
  query?: Readonly<Record<string, ZodType>>;
  /** Request headers that change what it does. */
  headers?: Readonly<Record<string, string>>;
  /** Protocols that it switches to (101). */
  upgrade?: readonly string[];
}

/** By `METHOD /url`, the url as the router has it. */
export type Operations = Readonly<Record<string, Operation>>;

export const bytes: Content = { type: 'application/octet-stream' };
export const tar: Content = { type: 'application/x-tar' };
export const sse = (schema: ZodType): Content => ({ type: 'text/event-stream', schema });
export const ndjson = (schema: ZodType): Content => ({ type: 'application/x-ndjson', schema });

export const idempotent = {
  'Idempotency-Key': 'Repeats within 24 hours with the same body are the first call; with another body they are 409.',
} as const;
export const resumable = { 'Last-Event-ID': 'The id of the last event seen: the stream goes on after it.' } as const;
