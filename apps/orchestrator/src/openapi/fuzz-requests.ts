/** For tests: requests that no client should send, made from the document: of every operation, every parameter and every field of its body. */
import type { DocumentedOperation, OpenApiDocument } from './document.ts';
import type { JsonSchema } from './schemas.ts';

export interface FuzzRequest {
  /** As the document has it, with its action. */
  operation: string;
  method: string;
  path: string;
  body?: string | Uint8Array<ArrayBuffer>;
  headers?: Record<string, string>;
}

const NUL = '\0';
const cursorOf = (position: object): string => Buffer.from(JSON.stringify(position)).toString('base64url');
/** Percent-encoded as they stand in a path or a query. */
const ODD_TEXTS = [
  'nobody',
  '%00',
  'a%00b',
  '%zz',
  '%',
  '%ff',
  '%ed%a0%80',
  '..%2f..%2fetc%2fpasswd',
  '%F0%9F%98%80',
  "'%3B%20drop%20table%20x%3B--",
  '-1',
  '1e999',
  '99999999999999999999999',
  'x'.repeat(1_100),
  '0000-01-01T00:00:00Z',
  '9999-12-31T23:59:59-14:00',
  cursorOf({ created_at: '0000-01-01T00:00:00.000000Z', id: 'x' }),
  cursorOf({ created_at: '9999-12-31T23:59:59.999999Z', id: NUL }),
  cursorOf({ id: '9999999999999999' }),
];
const ODD_VALUES: readonly unknown[] = [
  null,
  true,
  0,
  -1,
  2.5,
  2_147_483_648,
  Number.MAX_SAFE_INTEGER,
  1e308,
  '0000-01-01T00:00:00Z',
  '',
  `x${NUL}y`,
  'x'.repeat(5_000),
  '\ud800',
  [],
  [[]],
  {},
  { a: {} },
  { ['__proto__']: 1, [NUL]: NUL },
];
const deep = (depth: number, inner: string) => '['.repeat(depth) + inner + ']'.repeat(depth);
const ODD_BODIES: readonly (string | Uint8Array<ArrayBuffer>)[] = [
  '',
  ' ',
  '{',
  '}',
  'null',
  'true',
  '5',
  '"text"',
  '[]',
  '[{}]',
  '{}',
  '{"a":1}{"b":2}',
  '{"__proto__":{"x":1},"constructor":5}',
  deep(20_000, ''),
  deep(20_000, '"\\ud800"'),
  `{"a":${deep(20_000, '"\\ud800"')}}`,
  new Uint8Array([0x7b, 0x22, 0xff, 0x22, 0x7d]),
  new Uint8Array([0, 1, 2, 255]),
];
const ODD_HEADERS: readonly Record<string, string>[] = [
  { 'idempotency-key': '' },
  { 'idempotency-key': 'x'.repeat(2_000) },
  { 'idempotency-key': '\u00ff\u00fe' },
  { 'last-event-id': 'zz' },
  { 'last-event-id': 'f'.repeat(32) },
  { range: 'bytes=5-1' },
  { range: 'bytes=-' },
  { 'fuse-tenant': 'no such' },
  { 'fuse-tenant': 'x'.repeat(300) },
  { 'content-type': 'nonsense' },
  { 'content-type': 'multipart/form-data; boundary=x' },
  { 'content-encoding': 'gzip' },
  { expect: 'nonsense' },
];

/** `known`: values of path parameters that exist, by operation path; `bodies`: what a body needs besides. */
export interface FuzzHints {
  known: Readonly<Record<string, string>>;
  bodies: Readonly<Record<string, Record<string, unknown>>>;
}

export function* fuzzRequests(document: OpenApiDocument, hints: FuzzHints): Generator<FuzzRequest> {
  for (const [path, methods] of Object.entries(document.paths)) {
    yield* wrongMethods(path, Object.keys(methods));
    for (const [method, operation] of Object.entries(methods)) {
      const actions = actionsOf(operation);
      for (const action of actions) yield* ofOperation(document, hints, { path, method, operation, action });
    }
  }
}

const actionsOf = ({ parameters = [] }: DocumentedOperation): (string | undefined)[] => {
  const named = parameters.find(({ name }) => name === 'action')?.schema.enum;
  return Array.isArray(named) ? [...named.map(String), 'none-such', undefined] : [undefined];
};

function* wrongMethods(path: string, methods: string[]): Generator<FuzzRequest> {
  for (const method of ['get', 'head', 'post', 'put', 'patch', 'delete', 'options'])
    if (!methods.includes(method))
      yield { operation: `${method} ${path}`, method: method.toUpperCase(), path: path.replace(/\{\w+\}/g, 'nobody') };
}

interface Target {
  path: string;
  method: string;
  operation: DocumentedOperation;
  action: string | undefined;
}

function* ofOperation(document: OpenApiDocument, hints: FuzzHints, target: Target): Generator<FuzzRequest> {
  const { path, action, operation } = target;
  const name = `${target.method} ${path}${action === undefined ? '' : `?action=${action}`}`;
  const query = action === undefined ? '' : `action=${action}`;
  const request = (ids: string, more: Partial<FuzzRequest> & { query?: string } = {}): FuzzRequest => {
    const { query: further, ...rest } = more;
    const asked = [query, further ?? ''].filter((part) => part !== '').join('&');
    return {
      operation: name,
      method: target.method.toUpperCase(),
      path: `${ids}${asked === '' ? '' : `?${asked}`}`,
      ...rest,
    };
  };
  const known = path.replace(
    /\{(\w+)\}/g,
    (_, param: string) => hints.known[`${path} ${param}`] ?? hints.known[param] ?? 'nobody',
  );
  const given = (operation.parameters ?? []).filter(({ name: one }) => one !== 'action');
  const body = (value: unknown): { body?: string } =>
    operation.requestBody === undefined ? {} : { body: JSON.stringify(value) };
  const base = { ...hints.bodies[name], ...hints.bodies[`${target.method} ${path}`] };

  for (const { name: param } of given.filter((one) => one.in === 'path'))
    for (const text of ODD_TEXTS)
      yield request(
        known.replace(known, path).replace(/\{(\w+)\}/g, (_, one) => (one === param ? text : 'nobody')),
        body(base),
      );
  for (const { name: param } of given.filter((one) => one.in === 'query'))
    for (const text of ODD_TEXTS) yield request(known, { ...body(base), query: `${param}=${text}` });
  yield request(known, { ...body(base), query: 'unknown=%00&unknown=1&&&=&%=%' });
  for (const headers of ODD_HEADERS) yield request(known, { ...body(base), headers });
  if (operation.requestBody === undefined) return;
  for (const odd of ODD_BODIES) yield request(known, { body: odd });
  const limit = operation['x-fuse-body-limit-bytes'];
  if (limit !== undefined && limit <= 1_048_576) yield request(known, { body: `{"a":"${'x'.repeat(limit)}"}` });
  for (const schema of Object.values(operation.requestBody.content).map((one) => one.schema ?? {}))
    for (const [number, at] of fieldsOf(document, schema, 2).entries())
      for (const value of at.length === 1 ? ODD_VALUES : ODD_VALUES.filter((_, turn) => (turn + number) % 3 === 0))
        yield request(known, body(withValue(base, at, value)));
}

/** Paths of fields, down to `depth`. */
function fieldsOf(document: OpenApiDocument, schema: JsonSchema, depth: number): string[][] {
  const own = resolved(document, schema);
  const branches = (own.anyOf ?? own.oneOf ?? []) as JsonSchema[]; // as JSON Schema has them
  const properties = Object.entries((own.properties ?? {}) as Record<string, JsonSchema>);
  const found = properties.flatMap(([name, inner]) => [
    [name],
    ...(depth === 1 ? [] : fieldsOf(document, inner, depth - 1).map((rest) => [name, ...rest])),
  ]);
  return [...found, ...branches.flatMap((branch) => fieldsOf(document, branch, depth))];
}

function resolved(document: OpenApiDocument, schema: JsonSchema): JsonSchema {
  const { $ref } = schema;
  return typeof $ref === 'string'
    ? (document.components.schemas[$ref.slice('#/components/schemas/'.length)] ?? {})
    : schema;
}

function withValue(
  base: Record<string, unknown>,
  [name = '', ...rest]: string[],
  value: unknown,
): Record<string, unknown> {
  const inner = base[name];
  const object = typeof inner === 'object' && inner !== null ? { ...inner } : {};
  return { ...base, [name]: rest.length === 0 ? value : withValue(object, rest, value) };
}
