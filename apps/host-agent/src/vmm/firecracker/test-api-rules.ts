/** Requests by the letter of Firecracker's own description of its API, with what it does not say and the program insists on: no field beyond those that are named. */
import { existsSync, readFileSync } from 'node:fs';
import { Ajv, type ValidateFunction } from 'ajv';
import { parse } from 'yaml';

/** Beside the project: it is Firecracker's, not ours. */
const descriptionPath = new URL('../../../../../../shared/firecracker-api.yaml', import.meta.url);

export const apiDescriptionIsThere = existsSync(descriptionPath);

interface Operation {
  parameters?: { name: string; in: string; required?: boolean; schema?: object }[];
}
interface Description {
  paths: Record<string, Record<string, Operation>>;
  definitions: Record<string, { properties?: object; additionalProperties?: unknown }>;
}

export class ApiRules {
  readonly #operations: {
    method: string;
    path: RegExp;
    idName: string | undefined;
    body: ValidateFunction | undefined;
  }[] = [];

  constructor() {
    // What a YAML file holds is known by reading it; the tests would show it wrong.
    const { paths, definitions } = parse(readFileSync(descriptionPath, 'utf8')) as Description;
    for (const definition of Object.values(definitions))
      if (definition.properties !== undefined) definition.additionalProperties ??= false;
    const ajv = new Ajv({ strict: false, allErrors: true, validateFormats: false });
    for (const [template, operations] of Object.entries(paths))
      for (const [method, { parameters = [] }] of Object.entries(operations)) {
        const schema = parameters.find((each) => each.in === 'body')?.schema;
        this.#operations.push({
          method: method.toUpperCase(),
          path: new RegExp(`^${template.replaceAll(/\{\w+\}/g, '(\\w+)')}$`),
          idName: /\{(\w+)\}/.exec(template)?.[1],
          body: schema && ajv.compile({ ...schema, definitions }),
        });
      }
  }

  /** What is wrong with it. */
  fault(method: string, path: string, body: unknown): string | undefined {
    const operation = this.#operations.find((each) => each.method === method && each.path.test(path));
    if (operation === undefined) return `Invalid request method and/or path: ${method} ${path}.`;
    if (operation.body === undefined) return body === undefined ? undefined : `${method} request cannot have a body.`;
    if (body === undefined) return `Empty ${method} request.`;
    if (!operation.body(body)) {
      const problems = operation.body.errors?.map((error) => `${error.instancePath} ${error.message}`);
      return `An error occurred when deserializing the json body of a request: ${problems?.join(', ')}.`;
    }
    const { idName } = operation;
    const id = operation.path.exec(path)?.[1];
    if (idName !== undefined && id !== (body as Record<string, unknown>)[idName])
      // validated above
      return 'The id from the path does not match the id from the body!';
    return undefined;
  }
}
