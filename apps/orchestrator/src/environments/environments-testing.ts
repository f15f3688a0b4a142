/** For tests of environments through the API: an orchestrator of the file's own, and after each case nothing is left of what it made. */
import { Environment, ListEnvironments } from '@fuse/contract';
import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import type { Engine } from '../db/test-database.ts';
import { startTestOrchestrator, type TestOrchestrator, type TestOrchestratorOptions } from '../test-orchestrator.ts';

export interface TestedEnvironments {
  readonly test: TestOrchestrator;
  call: TestOrchestrator['call'];
  newTask(): string;
  /** 201, running. */
  create(body?: object): Promise<Environment>;
}

/** In a `describe`: its hooks are set up here. */
export function environmentsOn(
  engine: Engine,
  taskPrefix: string,
  options: TestOrchestratorOptions = {},
): TestedEnvironments {
  let started: TestOrchestrator | undefined;
  let number = 0;
  const test = (): TestOrchestrator => {
    if (started === undefined) throw new Error('not before `beforeAll`');
    return started;
  };
  const call: TestOrchestrator['call'] = (...request) => test().call(...request);
  const newTask = () => `${taskPrefix}-${++number}`;
  beforeAll(async () => {
    started = await startTestOrchestrator(engine, options);
  }, 60_000);
  afterAll(() => started?.[Symbol.asyncDispose]());
  afterEach(async () => {
    test().host.before = () => {};
    const { environments } = ListEnvironments.parse((await call('GET', '/v1/environments')).body);
    await Promise.all(environments.map(({ id }) => call('DELETE', `/v1/environments/${id}`)));
  });
  return {
    get test() {
      return test();
    },
    call,
    newTask,
    async create(body = {}) {
      const answer = await call('POST', '/v1/environments', { task_id: newTask(), ...body });
      expect(answer).toMatchObject({ status: 201 });
      return Environment.parse(answer.body);
    },
  };
}
