/** The document as one page of HTML that needs nothing else: no script, no font, no network. */
import type { DocumentedOperation, OpenApiDocument, Parameter } from './document.ts';
import type { JsonSchema } from './schemas.ts';

const STYLE = `
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}
h1{margin-bottom:.2rem}h2{margin-top:2.5rem;border-bottom:1px solid #d5dae0}
code,pre{font:13px/1.45 ui-monospace,monospace}pre{background:#f5f7f9;padding:.7rem;overflow:auto;border-radius:6px}
details{border:1px solid #d5dae0;border-radius:6px;margin:.4rem 0;padding:.3rem .7rem}summary{cursor:pointer}
summary code b{display:inline-block;min-width:4.2rem}td,th{padding:.15rem .8rem .15rem 0;text-align:left;vertical-align:top}
.who{color:#5c6670;font-size:13px}nav a{margin-right:.9rem}
@media(prefers-color-scheme:dark){body{color:#dfe4ea;background:#14171a}pre{background:#1e2327}details,h2{border-color:#363d44}a{color:#7ab7ff}.who{color:#98a2ad}}`;

export function renderPage(document: OpenApiDocument): string {
  const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method, operation })),
  );
  const groups = document.tags
    .map((tag) => ({ ...tag, operations: operations.filter(({ operation }) => operation.tags.includes(tag.name)) }))
    .filter((group) => group.operations.length > 0);
  const links = groups.map(({ name }) => `<a href="#${anchor(name)}">${escaped(name)}</a>`).join('');
  const sections = groups.map(
    ({ name, description, operations: own }) =>
      `<h2 id="${anchor(name)}">${escaped(name)}</h2><p>${escaped(description)}</p>${own
        .map(({ path, method, operation }) => renderOperation(method, path, operation))
        .join('')}`,
  );
  const schemas = Object.entries(document.components.schemas).map(
    ([name, schema]) =>
      `<details id="schema-${anchor(name)}"><summary><code>${escaped(name)}</code></summary>${renderSchema(schema)}</details>`,
  );
  return `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>${escaped(document.info.title)} API</title><style>${STYLE}</style>
<h1>${escaped(document.info.title)} API</h1><p>${inline(document.info.description)}</p><p><a href="/openapi.json">openapi.json</a></p>
<nav>${links}<a href="#schemas">schemas</a></nav>${sections.join('')}<h2 id="schemas">schemas</h2>${schemas.join('')}</html>\n`;
}

function renderOperation(method: string, path: string, operation: DocumentedOperation): string {
  const { summary, description, parameters = [], requestBody, responses } = operation;
  const {
    'x-fuse-auth': auth,
    'x-fuse-scopes': scopes,
    'x-fuse-upgrade': upgrade,
    'x-fuse-body-limit-bytes': limit,
  } = operation;
  const who = { none: 'no credentials', master: 'the master' }[auth] ?? 'any credential';
  const parts = [
    `<p class="who">${escaped(who)}${scopes === undefined ? '' : `, scope ${scopeText(scopes)}`}${upgrade === undefined ? '' : `, upgrade to ${escaped(upgrade.join(' or '))}`}</p>`,
    description === undefined ? '' : `<p>${inline(description)}</p>`,
    parameters.length === 0 ? '' : `<table>${parameters.map(renderParameter).join('')}</table>`,
    requestBody === undefined
      ? ''
      : `<p>Body${requestBody.required ? '' : ' (may be left out)'}${limit === undefined ? '' : `, at most ${limit} bytes`}. ${escaped(requestBody.description ?? '')}</p>${renderContent(requestBody.content)}`,
    ...Object.entries(responses).map(([status, response]) => renderResponse(status, response as Response)), // as document.ts makes them
  ];
  return `<details><summary><code><b>${method.toUpperCase()}</b>${escaped(path)}</code> ${inline(summary)}</summary>${parts.join('')}</details>`;
}

const scopeText = (scopes: readonly string[] | Record<string, readonly string[]>): string =>
  isList(scopes)
    ? inline(scopes.map((scope) => `\`${scope}\``).join(' or '))
    : Object.entries(scopes)
        .map(([action, own]) => `${escaped(action)}: ${scopeText(own)}`)
        .join('; ');
const isList = (scopes: object): scopes is readonly string[] => Array.isArray(scopes);

interface Response {
  description?: string;
  content?: Record<string, { schema?: JsonSchema }>;
}

const renderParameter = ({ name, in: place, required, description = '', schema }: Parameter): string =>
  `<tr><td><code>${escaped(name)}</code><td>${place}${required ? ', required' : ''}<td>${escaped(describe(schema))} ${inline(description)}`;

function renderResponse(status: string, { description, content = {} }: Response): string {
  if (status === 'default') return '';
  return `<p><b>${escaped(status)}</b> ${escaped(description ?? '')}</p>${renderContent(content)}`;
}

const renderContent = (content: Record<string, { schema?: JsonSchema }>): string =>
  Object.entries(content)
    .map(
      ([type, { schema }]) => `<p class="who">${escaped(type)}</p>${schema === undefined ? '' : renderSchema(schema)}`,
    )
    .join('');

const renderSchema = (schema: JsonSchema): string => {
  const name = referred(schema);
  if (name !== undefined) return `<p><a href="#schema-${anchor(name)}"><code>${escaped(name)}</code></a></p>`;
  const text = escaped(JSON.stringify(schema, null, 1));
  return `<pre>${text.replace(/#\/components\/schemas\/(\w+)/g, (all, id: string) => `<a href="#schema-${anchor(id)}">${all}</a>`)}</pre>`;
};

const referred = ({ $ref }: JsonSchema): string | undefined =>
  typeof $ref === 'string' ? $ref.slice('#/components/schemas/'.length) : undefined;

function describe(schema: JsonSchema): string {
  const name = referred(schema);
  if (name !== undefined) return name;
  if (Array.isArray(schema.enum)) return schema.enum.map((one) => (one === '' ? '""' : String(one))).join(' | ');
  return typeof schema.type === 'string' ? schema.type : '';
}

const anchor = (name: string): string => name.replace(/[^A-Za-z0-9]+/g, '-');
const inline = (text: string): string => escaped(text).replace(/`([^`]+)`/g, '<code>$1</code>');
const escaped = (text: string): string =>
  text.replace(/[&<>"]/g, (one) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[one] ?? one);
