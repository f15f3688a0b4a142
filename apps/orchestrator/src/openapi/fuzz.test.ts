import { ErrorEnvelope } from '@fuse/contract';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { engines } from '../db/test-database.ts';
import { startTestOrchestrator, TEST_TOKEN, type TestOrchestrator } from '../test-orchestrator.ts';
import { describedOperations } from './descriptions/index.ts';
import type { OpenApiDocument } from './document.ts';
import { type FuzzRequest, fuzzRequests } from './fuzz-requests.ts';

const holdsNull = (value: unknown): boolean =>
  value === null || (typeof value === 'object' && Object.values(value).some(holdsNull));

const isEnding = ({ operation }: FuzzRequest): boolean => /^delete |action=(pause|drain|rotate-token)$/.test(operation);

const AT_ONCE = 8;
/** A request that is not answered by then hangs. */
const ANSWERED_MS = 60_000;

/** What is wrong with the body as a whole has no field. */
const OF_NO_FIELD = /^invalid JSON body|^the request body was cut/;

describe.each(engines)('requests that no client should send, on %s', (engine) => {
  let test: TestOrchestrator;
  let document: OpenApiDocument;
  beforeAll(async () => {
    test = await startTestOrchestrator(engine);
    document = (await test.call('GET', '/openapi.json')).body;
  }, 120_000);
  afterAll(() => test[Symbol.asyncDispose]());

  async function problemsOf(request: FuzzRequest): Promise<string | undefined> {
    const { operation, method, path, body, headers } = request;
    const stop = AbortSignal.timeout(ANSWERED_MS);
    const response = await fetch(`${test.orchestrator.url}${path}`, {
      method,
      redirect: 'manual',
      signal: stop,
      headers: { authorization: `Bearer ${TEST_TOKEN}`, ...headers },
      ...(body === undefined || method === 'GET' || method === 'HEAD' ? {} : { body }),
    }).catch((error: unknown) => error);
    if (!(response instanceof Response))
      return headers?.expect ? undefined : `no answer: ${String(response)} ${String((response as Error).cause)}`;
    const { status } = response;
    const isJson = response.headers.get('content-type')?.startsWith('application/json') ?? false;
    if (status < 400)
      return isJson ? answered(operation, status, await response.json()) : void (await response.body?.cancel());
    if (status === 405) return response.headers.has('allow') ? undefined : 'a 405 without Allow';
    if (method === 'HEAD') return status === 500 ? 'a 500' : undefined;
    if (path === '/ready') return;
    const text = await response.text();
    if (!isJson) return `${status} without an envelope: ${text.slice(0, 200)}`;
    const envelope = ErrorEnvelope.safeParse(JSON.parse(text));
    if (!envelope.success) return `${status}, no envelope: ${text.slice(0, 200)}`;
    const { error } = envelope.data;
    if (status === 500 || (error.code === 'internal' && status !== 502)) return `a ${status}: ${text}`;
    if (status === 400 && error.details?.field === undefined && !OF_NO_FIELD.test(error.message))
      return `a 400 without a field: ${text}`;
    return undefined;
  }

  /** What succeeded is as the document says, and holds no null. */
  function answered(operation: string, status: number, answer: unknown): string | undefined {
    const [key = ''] = operation.split('?');
    const [method = '', path = ''] = key.split(' ');
    const url = path.replace('/{path}', '/*').replace(/\{(\w+)\}/g, ':$1');
    const content = describedOperations[`${method.toUpperCase()} ${url}`]?.answers[status];
    if (content === undefined) return `${status} is not in the document`;
    if (path !== '/openapi.json' && holdsNull(answer)) return `holds null: ${JSON.stringify(answer)}`;
    if (content === null || !('safeParse' in content)) return undefined;
    const parsed = content.safeParse(answer);
    return parsed.success ? undefined : `${status} is not as the document says: ${parsed.error.message}`;
  }

  it('are refused with a code, and with the field that is at fault; none is a 500', async () => {
    const { body: environment } = await test.call('POST', '/v1/environments', { task_id: 'real' });
    const requests = [
      ...fuzzRequests(document, {
        known: {
          id: environment.id,
          exec_id: 'none',
          pid: '1',
          port: '80',
          position: '0',
          path: 'none',
          operation: 'none',
        },
        bodies: {
          'post /v1/environments': { task_id: 'fuzzed', spec: { host_id: 'none' } },
          'post /v1/environments/{id}?action=exec': { cmd: ['true'] },
          'post /v1/environments/{id}/execs': { cmd: ['true'] },
          'post /v1/runs': { cmd: ['true'], image: 'none' },
          'post /v1/hosts': { id: 'none', url: 'http://127.0.0.1:1' },
          'post /v1/tenants': { id: 'none' },
        },
      }),
    ].filter((_, at) => engine === 'postgres' || at % 7 === 0);
    // What ends or stops the environment comes last.
    requests.sort((a, b) => Number(isEnding(a)) - Number(isEnding(b)));
    const problems: string[] = [];
    const queue = requests.values();
    const work = async () => {
      for (const request of queue) {
        const problem = await problemsOf(request);
        if (problem === undefined) continue;
        const sent = typeof request.body === 'string' ? request.body.slice(0, 200) : (request.body ?? '');
        problems.push(
          `${request.method} ${request.path.slice(0, 200)} ${JSON.stringify(request.headers ?? {})} ${sent}\n    ${problem}`,
        );
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    expect(requests.length).toBeGreaterThan(1_000);
    expect(problems.slice(0, 20).join('\n'), `${problems.length} of ${requests.length}`).toBe('');
  }, 600_000);
});
