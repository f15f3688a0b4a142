/** The vectors in golden/file-operations.json hold the contract's file operations and the Go side (guest/internal/protocol) to the same bodies. */
import { readFileSync } from 'node:fs';
import { fileOperations, TarIn, WatchEvent } from '@fuse/contract';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';

const Vectors = z.object({ requests: z.array(z.unknown()), responses: z.array(z.unknown()) });
const {
  watch_events: events,
  tar_in: extracted,
  ...operations
} = z
  .object({ watch_events: z.array(z.unknown()), tar_in: z.array(z.unknown()) })
  .catchall(Vectors)
  .parse(JSON.parse(readFileSync(new URL('../golden/file-operations.json', import.meta.url), 'utf8')));

describe('golden file operations', () => {
  it('have vectors each', () => {
    expect(Object.keys(operations).sort()).toEqual(Object.keys(fileOperations).sort());
  });

  it.each(Object.entries(fileOperations))('%s keeps every field', (name, { request, response }) => {
    for (const body of operations[name]?.requests ?? []) expect(request.parse(body)).toEqual(body);
    for (const body of operations[name]?.responses ?? []) expect(response.parse(body)).toEqual(body);
  });

  it('so do events of a watch, and what extracting answers', () => {
    for (const event of events) expect(WatchEvent.parse(event)).toEqual(event);
    for (const body of extracted) expect(TarIn.parse(body)).toEqual(body);
  });
});
