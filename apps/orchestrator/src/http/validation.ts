/** Zod schemas of a route's body, query and path: what fits replaces the raw value, what does not is 400 with the field. */
import { AppError, errorStatus, invalidField } from '@fuse/contract';
import type { ZodError, ZodType } from 'zod';
import type { App } from './http-server.ts';
import { toJsonLine } from './response-headers.ts';

export function installValidation(app: App): void {
  // No id and no filter has one, and no database takes it.
  app.addHook('preValidation', async ({ params, query }) => {
    for (const part of [params, query])
      for (const [name, value] of Object.entries(part ?? {}))
        if ([value].flat().some((text) => typeof text === 'string' && text.includes('\0')))
          throw invalidField(name.replaceAll('\0', '') || '(query)', 'must not hold NUL');
  });
  app.setValidatorCompiler<ZodType>(({ schema, httpPart }) => (data: unknown) => {
    if (httpPart === 'body' && (data === undefined || data === null) && !schema.safeParse(data).success)
      return { error: emptyBody() };
    const result = schema.safeParse(data);
    return result.success ? { value: result.data } : { error: invalidInput(result.error) };
  });
  // Response schemas describe; what a service returns is typed by the same schemas already.
  app.setSerializerCompiler(() => toJsonLine);
}

/** For a route whose body's schema depends on more than its path. */
export function parseBody<T extends ZodType>(schema: T, body: unknown): ReturnType<T['parse']> {
  if (body === undefined || body === null) throw emptyBody();
  const result = schema.safeParse(body);
  if (!result.success) throw invalidInput(result.error);
  return result.data as ReturnType<T['parse']>; // zod's own type, which `T` hides
}

const emptyBody = () =>
  new AppError('invalid_argument', 'invalid JSON body: a JSON object is required', {
    hint: 'Send one JSON object in UTF-8.',
  });

/** The first problem, told with the dotted path of its field (`spec.labels.team`, `cmd.0`). */
export function invalidInput(error: ZodError): AppError {
  const issue = deepest(error.issues[0]);
  const field = issue?.path.map(String).join('.') ?? '';
  const problem = issue?.message ?? 'invalid';
  const named = field === '' || problem.startsWith(field) ? problem : `${field}: ${problem}`;
  return new AppError('invalid_argument', named, {
    status: errorStatus.invalid_argument,
    details: { field: field === '' ? '(body)' : field },
  });
}

type Issue = ZodError['issues'][number];
interface Located {
  path: PropertyKey[];
  message: string;
}

/** Of a name that is not known the name, of a union the branch that got furthest, of a record's key the rule that the key broke. */
function deepest(issue: Issue | undefined, above: PropertyKey[] = []): Located | undefined {
  if (issue === undefined) return undefined;
  const path = [...above, ...issue.path];
  if (issue.code === 'invalid_union') {
    const branches = issue.errors.map((issues) => deepest(issues[0], path)).filter((found) => found !== undefined);
    return branches.sort((a, b) => b.path.length - a.path.length)[0] ?? { path, message: issue.message };
  }
  if (issue.code === 'unrecognized_keys') return { path: [...path, ...issue.keys.slice(0, 1)], message: issue.message };
  if (issue.code === 'invalid_key') return { path, message: issue.issues[0]?.message ?? issue.message };
  return { path, message: issue.message };
}
