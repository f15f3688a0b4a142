/** The OpenAPI 3.1 document: bodies, queries and paths from the schemas that the routes check with, the rest from `descriptions/`. */
import { ErrorEnvelope, SESSION_COOKIE, TENANT_HEADER } from '@fuse/contract';
import { DEFAULT_BODY_LIMIT_BYTES } from '../http/http-server.ts';
import type { ListedRoute } from '../http/route-list.ts';
import { describedOperations } from './descriptions/index.ts';
import { queryParameterDescription } from './descriptions/query-parameters.ts';
import { type Content, type Operation, tags } from './operation.ts';
import { type JsonSchema, Schemas } from './schemas.ts';

export interface OpenApiDocument {
  openapi: string;
  info: { title: string; version: string; description: string };
  tags: { name: string; description: string }[];
  paths: Record<string, Record<string, DocumentedOperation>>;
  components: Record<string, unknown> & { schemas: Record<string, JsonSchema> };
  security: Record<string, string[]>[];
  servers: { url: string }[];
}

export interface DocumentedOperation {
  operationId: string;
  tags: string[];
  summary: string;
  description?: string;
  parameters?: Parameter[];
  requestBody?: { required: boolean; description?: string; content: MediaTypes };
  responses: Record<string, unknown>;
  security?: [];
  /** Who may call: `none`, `any`, `master`. */
  'x-fuse-auth': string;
  /** What a key with scopes needs, one of them; by action where there are actions. */
  'x-fuse-scopes'?: readonly string[] | Record<string, readonly string[]>;
  /** False: a mutating method that changes nothing, so it leaves no audit entry. */
  'x-fuse-audit'?: boolean;
  'x-fuse-body-limit-bytes'?: number;
  'x-fuse-upgrade'?: readonly string[];
}

export interface Parameter {
  name: string;
  in: 'path' | 'query' | 'header';
  required: boolean;
  description?: string;
  schema: JsonSchema;
}
type MediaTypes = Record<string, { schema?: JsonSchema }>;

const DESCRIPTION = `Disposable microVMs for AI agents. Send \`Authorization: Bearer <token>\`: the master token or an API key. Every error is \
\`{"error": {"code", "message", "details"?, "hint"?}}\`; every answer has \`X-Request-ID\`. The master acts in the tenant that the header \`${TENANT_HEADER}\` names. \
Fields that are not known are ignored, \`null\` is taken for absent.`;

export function buildDocument(routes: readonly ListedRoute[]): OpenApiDocument {
  const schemas = new Schemas();
  const error = schemas.of(ErrorEnvelope);
  const paths: OpenApiDocument['paths'] = {};
  for (const group of grouped(routes)) {
    const path = pathOf(group.route.url);
    paths[path] = { ...paths[path], [group.route.method.toLowerCase()]: documented(group, schemas) };
  }
  return {
    openapi: '3.1.0',
    info: { title: 'Fuse', version: '1', description: DESCRIPTION },
    servers: [{ url: '/' }],
    tags: Object.entries(tags).map(([name, description]) => ({ name, description })),
    paths,
    components: {
      schemas: Object.fromEntries(Object.entries(schemas.components).sort(([a], [b]) => (a < b ? -1 : 1))),
      responses: { Error: { description: 'Refused, or failed', content: { 'application/json': { schema: error } } } },
      securitySchemes: {
        bearer: { type: 'http', scheme: 'bearer' },
        session: { type: 'apiKey', in: 'cookie', name: SESSION_COOKIE },
      },
    },
    security: [{ bearer: [] }, { session: [] }],
  };
}

/** Routes without a description, and descriptions without a route. */
export function unmatched(routes: readonly ListedRoute[]): { routes: string[]; descriptions: string[] } {
  const keys = new Set(routes.map(keyOf));
  return {
    routes: [...keys].filter((key) => describedOperations[key] === undefined),
    descriptions: Object.keys(describedOperations).filter((key) => !keys.has(key)),
  };
}

/** The routes of one method and path: the one that takes no action or any, and those of one action each. */
interface Group {
  route: ListedRoute;
  ofActions: ListedRoute[];
  described: Operation;
}

function grouped(routes: readonly ListedRoute[]): Group[] {
  const groups = new Map<string, ListedRoute[]>();
  for (const route of routes) groups.set(keyOf(route), [...(groups.get(keyOf(route)) ?? []), route]);
  return [...groups]
    .sort(([, [a]], [, [b]]) => (sortKey(a) < sortKey(b) ? -1 : 1))
    .flatMap(([key, all]) => {
      const route = all.find(({ action }) => action === undefined) ?? all[0];
      if (route === undefined) return [];
      const ofActions = all.filter(({ action }) => action !== undefined);
      return [
        { route, ofActions, described: describedOperations[key] ?? { tag: 'operations', summary: key, answers: {} } },
      ];
    });
}

const keyOf = ({ method, url }: ListedRoute): string => `${method} ${url}`;
const sortKey = (route: ListedRoute | undefined): string => (route === undefined ? '' : `${route.url} ${route.method}`);
const pathOf = (url: string): string => url.replace(/:(\w+)/g, '{$1}').replace('*', '{path}');

function documented(group: Group, schemas: Schemas): DocumentedOperation {
  const { route, ofActions, described } = group;
  const { auth = 'any', probe, audit } = route.config;
  const parameters = parametersOf(group, schemas);
  const requestBody = bodyOf(group, schemas);
  const isOpen = auth === 'none' || probe === true;
  const scopes = scopesOf(group);
  const limits = [route, ...ofActions].map(({ bodyLimitBytes = DEFAULT_BODY_LIMIT_BYTES }) => bodyLimitBytes);
  return {
    operationId: operationIdOf(route),
    tags: [described.tag],
    summary: described.summary,
    ...(described.description === undefined ? {} : { description: described.description }),
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(requestBody === undefined ? {} : { requestBody }),
    responses: responsesOf(described, schemas),
    ...(isOpen ? { security: [] } : {}),
    'x-fuse-auth': isOpen ? 'none' : auth,
    ...(scopes === undefined ? {} : { 'x-fuse-scopes': scopes }),
    ...(audit === undefined ? {} : { 'x-fuse-audit': audit }),
    ...(requestBody?.content['application/json'] === undefined
      ? {}
      : { 'x-fuse-body-limit-bytes': Math.max(...limits) }),
    ...(described.upgrade === undefined ? {} : { 'x-fuse-upgrade': described.upgrade }),
  };
}

function scopesOf({ route, ofActions }: Group): DocumentedOperation['x-fuse-scopes'] {
  if (ofActions.length > 0)
    return Object.fromEntries(ofActions.map(({ action = '', config }) => [action, [config.scope ?? []].flat()]));
  const { scope } = route.config;
  return scope === undefined ? undefined : [scope].flat();
}

const operationIdOf = ({ method, url }: ListedRoute): string =>
  [
    method.toLowerCase(),
    ...pathOf(url)
      .replace(/\{/g, 'by-')
      .split(/[^A-Za-z0-9]+/),
  ]
    .filter((word) => word !== '' && word !== 'v1')
    .map((word, at) => (at === 0 ? word : word.charAt(0).toUpperCase() + word.slice(1)))
    .join('');

function parametersOf({ route, ofActions, described }: Group, schemas: Schemas): Parameter[] {
  const { url } = route;
  const schema = { ...ofActions[0]?.schema, ...route.schema };
  const known = schema.params === undefined ? [] : schemas.properties(schema.params);
  const inPath = [...url.matchAll(/:(\w+)|(\*)/g)].map(([, name, rest]) => name ?? rest ?? '');
  const query = [
    ...(schema.querystring === undefined ? [] : schemas.properties(schema.querystring)),
    ...Object.entries(described.query ?? {}).map(([name, one]) => ({ name, required: false, schema: schemas.of(one) })),
  ].filter(({ name }) => name !== 'action' || described.actions === undefined);
  const action = described.actions === undefined ? [] : [actionOf(described.actions)];
  return [
    ...inPath.map(
      (name): Parameter => ({
        name: name === '*' ? 'path' : name,
        in: 'path',
        required: true,
        ...(name === '*' ? { description: 'May hold slashes.' } : {}),
        schema: known.find((one) => one.name === name)?.schema ?? { type: 'string' },
      }),
    ),
    ...action,
    ...query.map(({ name, required, schema: one }): Parameter => {
      const description = queryParameterDescription(keyOf(route), name);
      return {
        name,
        in: 'query',
        required,
        ...(description === undefined ? {} : { description }),
        schema: given(one),
      };
    }),
    ...Object.entries(described.headers ?? {}).map(
      ([name, description]): Parameter => ({
        name,
        in: 'header',
        required: false,
        description,
        schema: { type: 'string' },
      }),
    ),
  ];
}

const actionOf = (actions: NonNullable<Operation['actions']>): Parameter => ({
  name: 'action',
  in: 'query',
  required: true,
  description: 'What is done with it.',
  schema: { type: 'string', enum: Object.keys(actions) },
});

/** Of one that may be repeated though it need not be: of several the last one counts. */
function given(schema: JsonSchema): JsonSchema {
  const { anyOf } = schema as { anyOf?: JsonSchema[] };
  return anyOf?.length === 2 && anyOf[0]?.type === 'string' && anyOf[1]?.type === 'array' ? { type: 'string' } : schema;
}

function bodyOf({ route, ofActions, described }: Group, schemas: Schemas): DocumentedOperation['requestBody'] {
  if (described.actions !== undefined || ofActions.length > 0) {
    const own = ofActions.map(({ action = '', schema }): [string, Content] => [action, schema?.body ?? null]);
    return bodyOfActions({ ...described.actions, ...Object.fromEntries(own) }, schemas);
  }
  const content = contentOf(described.body ?? route.schema?.body ?? null, schemas);
  return content === undefined ? undefined : { required: described.bodyOptional !== true, content };
}

function bodyOfActions(
  actions: NonNullable<Operation['actions']>,
  schemas: Schemas,
): DocumentedOperation['requestBody'] {
  const bodies = Object.entries(actions).filter(([, body]) => body !== null);
  if (bodies.length === 0) return undefined;
  const oneOf = bodies.flatMap(([, body]) =>
    Object.values(contentOf(body, schemas) ?? {}).map(({ schema = {} }) => schema),
  );
  const without = Object.keys(actions).filter((name) => actions[name] === null);
  const description = `By action: ${bodies.map(([name]) => name).join(', ')}.${without.length === 0 ? '' : ` None: ${without.join(', ')}.`}`;
  return { required: false, description, content: { 'application/json': { schema: { anyOf: oneOf } } } };
}

function responsesOf({ answers, upgrade }: Operation, schemas: Schemas): Record<string, unknown> {
  const responses: Record<string, unknown> = {};
  if (upgrade !== undefined) responses['101'] = { description: `Switches to ${upgrade.join(' or ')}` };
  for (const [status, answer] of Object.entries(answers)) {
    const content = contentOf(answer, schemas);
    responses[status] = { description: meaning[status] ?? 'Answered', ...(content === undefined ? {} : { content }) };
  }
  return { ...responses, default: { $ref: '#/components/responses/Error' } };
}

const meaning: Record<string, string> = {
  200: 'Done',
  201: 'Made',
  202: 'Accepted: it goes on',
  204: 'Done, without a body',
  206: 'A part, as asked for by Range',
  503: 'Not now',
};

function contentOf(content: Content, schemas: Schemas): MediaTypes | undefined {
  if (content === null) return undefined;
  if (!('type' in content) || 'parse' in content) return { 'application/json': { schema: schemas.of(content) } };
  const { type, schema } = content;
  return { [type]: schema === undefined ? {} : { schema: schemas.of(schema) } };
}
