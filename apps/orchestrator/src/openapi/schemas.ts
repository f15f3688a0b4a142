/** Zod schemas as JSON Schema (2020-12, as OpenAPI 3.1 has it). Those that the contract exports are components, by their names there. */
import * as contract from '@fuse/contract';
import { type ZodType, z } from 'zod';

export type JsonSchema = Record<string, unknown>;

const named = z.registry<{ id: string }>();
for (const [id, exported] of Object.entries(contract)) if (exported instanceof z.ZodType) named.add(exported, { id });

/** Collects the components that the schemas made with it refer to. */
export class Schemas {
  readonly components: Record<string, JsonSchema> = {};

  /** As it is sent: what may be left out is not required, `null` for absent is not mentioned. */
  of(schema: ZodType): JsonSchema {
    const made = z.toJSONSchema(schema, { io: 'input', metadata: named, unrepresentable: 'any', override: simplify });
    const {
      $schema: _,
      $defs = {},
      ...own
    } = JSON.parse(JSON.stringify(made).replaceAll('"#/$defs/', '"#/components/schemas/')) as JsonSchema & {
      $defs?: Record<string, JsonSchema>;
    };
    Object.assign(this.components, $defs);
    return own;
  }

  /** The properties of an object schema, each with whether it must be there. */
  properties(schema: ZodType): { name: string; required: boolean; schema: JsonSchema }[] {
    const { properties = {}, required = [] } = this.of(schema) as {
      properties?: Record<string, JsonSchema>;
      required?: string[];
    };
    return Object.entries(properties).map(([name, property]) => ({
      name,
      required: required.includes(name),
      schema: property,
    }));
  }
}

/** Bounds that say no more than `integer` does, and a pattern that says no more than its format. */
function simplify({ jsonSchema }: { jsonSchema: JsonSchema }): void {
  if (jsonSchema.minimum === Number.MIN_SAFE_INTEGER) delete jsonSchema.minimum;
  if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum;
  if (jsonSchema.format === 'date-time') delete jsonSchema.pattern;
  delete jsonSchema.id;
}
