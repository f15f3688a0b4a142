import { readFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestOrchestrator, type TestOrchestrator } from '../test-orchestrator.ts';
import { type OpenApiDocument, unmatched } from './document.ts';

const WRITTEN = new URL('../../../../docs/openapi.json', import.meta.url);

describe('the OpenAPI document', () => {
  let test: TestOrchestrator;
  let document: OpenApiDocument;
  beforeAll(async () => {
    test = await startTestOrchestrator('pglite');
    document = (await test.call('GET', '/openapi.json')).body;
  }, 120_000);
  afterAll(() => test[Symbol.asyncDispose]());

  it('is the one in docs/ (npm run openapi writes it)', async () => {
    expect(document).toEqual(JSON.parse(await readFile(WRITTEN, 'utf8')));
  });

  it('describes every route, and none that does not exist', () => {
    expect(unmatched(test.orchestrator.routes)).toEqual({ routes: [], descriptions: [] });
  });

  it('refers to nothing that is not there, and names every operation once', () => {
    const refs = [...JSON.stringify(document).matchAll(/"\$ref":"#\/components\/(\w+)\/(\w+)"/g)];
    expect(refs.length).toBeGreaterThan(50);
    for (const [, kind = '', name = ''] of refs) expect(document.components[kind], name).toHaveProperty([name]);
    const ids = Object.values(document.paths).flatMap((methods) =>
      Object.values(methods).map((one) => one.operationId),
    );
    expect(new Set(ids).size).toBe(ids.length);
    for (const [path, methods] of Object.entries(document.paths))
      for (const { parameters = [] } of Object.values(methods)) {
        const inPath = parameters.filter((one) => one.in === 'path').map(({ name }) => `{${name}}`);
        expect(path.match(/\{\w+\}/g) ?? []).toEqual(inPath);
      }
  });

  it('says what every query parameter means, and is of the server that it came from', () => {
    for (const [path, methods] of Object.entries(document.paths))
      for (const { parameters = [], summary } of Object.values(methods)) {
        expect(summary).not.toContain('`');
        for (const { name, in: place, description } of parameters)
          if (place !== 'path') expect(description, `${path} ${name}`).toMatch(/\.$/);
      }
    expect(document.servers).toEqual([{ url: '/' }]);
  });

  it('is a page of its own too, open to all, with every operation and nothing from elsewhere', async () => {
    const response = await fetch(`${test.orchestrator.url}/docs`);
    const html = await response.text();
    expect(response.status).toBe(200);
    expect(response.headers.get('content-type')).toBe('text/html; charset=utf-8');
    for (const path of Object.keys(document.paths)) expect(html).toContain(`</b>${path}</code>`);
    expect(html).not.toMatch(/<script|<link|src=|https?:\/\//);
  });
});
