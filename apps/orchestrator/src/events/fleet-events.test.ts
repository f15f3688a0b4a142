import { createParser } from 'eventsource-parser';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { engines } from '../db/test-database.ts';
import { startTestOrchestrator, TEST_TOKEN, type TestOrchestrator } from '../test-orchestrator.ts';

interface Frame {
  id: string | undefined;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into events of every shape
  data: any;
}

describe.each(engines)('event streams on %s', (engine) => {
  let test: TestOrchestrator;
  beforeAll(async () => {
    test = await startTestOrchestrator(engine);
    expect((await test.call('POST', '/v1/tenants', { id: 'acme' })).status).toBe(201);
  }, 120_000);
  afterAll(() => test[Symbol.asyncDispose]());

  const inAcme = { headers: { 'fuse-tenant': 'acme' } };

  /** Follows until `isLast`; `begun` once it is being followed. */
  function open(path: string, headers: Record<string, string>, isLast: (frame: Frame) => boolean) {
    let hasBegun = () => {};
    const begun = new Promise<void>((resolve) => {
      hasBegun = resolve;
    });
    const frames = (async () => {
      const seen: Frame[] = [];
      const stop = new AbortController();
      const response = await fetch(`${test.orchestrator.url}${path}`, {
        headers: { authorization: `Bearer ${TEST_TOKEN}`, ...headers },
        signal: stop.signal,
      });
      expect(response.status).toBe(200);
      const parser = createParser({ onEvent: ({ id, data }) => void seen.push({ id, data: JSON.parse(data) }) });
      const decoder = new TextDecoder();
      for await (const chunk of response.body ?? []) {
        hasBegun();
        parser.feed(decoder.decode(chunk as Uint8Array, { stream: true }));
        if (seen.some(isLast)) break;
      }
      stop.abort();
      return seen;
    })();
    return { begun, frames };
  }
  const create = (id: string, more: object = {}, init = {}) =>
    test.call('POST', '/v1/environments', { task_id: id, ...more }, init);
  const destroyed = (vmId: string) => (frame: Frame) => frame.data.vm_id === vmId && frame.data.state === 'destroyed';
  const told = (frames: Frame[]) =>
    frames.map(({ data }) => `${data.tenant_id} ${data.vm_id} ${data.event === 'state' ? data.state : data.event}`);

  it('tell what happens to the environments of a tenant, or of all, and go on after the last one seen', async () => {
    const all = open('/v1/events', {}, destroyed('fuse-two'));
    const acme = open('/v1/events', { 'fuse-tenant': 'acme' }, destroyed('fuse-two'));
    await Promise.all([all.begun, acme.begun]);
    await create('one');
    await create('two', {}, inAcme);
    await test.call('DELETE', '/v1/environments/fuse-one');
    await test.call('DELETE', '/v1/environments/fuse-two', undefined, inAcme);
    const life = (tenant: string, id: string) =>
      ['provisioning', 'step', 'step', 'running', 'destroying', 'destroyed'].map((what) => `${tenant} ${id} ${what}`);
    const frames = await all.frames;
    expect(told(frames)).toEqual([
      ...life('default', 'fuse-one').slice(0, 4),
      ...life('acme', 'fuse-two').slice(0, 4),
      ...life('default', 'fuse-one').slice(4),
      ...life('acme', 'fuse-two').slice(4),
    ]);
    expect(told(await acme.frames)).toEqual(life('acme', 'fuse-two'));
    for (const { id, data } of frames) expect(data.id).toBe(id);
    const fifth = frames[4]?.id ?? '';
    const later = await open('/v1/events', { 'last-event-id': fifth }, destroyed('fuse-two')).frames;
    expect(later).toEqual(frames.slice(5));
    expect((await open(`/v1/events?last_event_id=${fifth}`, {}, destroyed('fuse-two')).frames)[0]).toEqual(frames[5]);
  });

  it('say that they cannot go on after an event that is not known, and go on from now', async () => {
    for (const id of ['f'.repeat(32), 'nonsense', `${'0'.repeat(31)}1`]) {
      const [first] = await open('/v1/events', { 'last-event-id': id }, () => true).frames;
      expect(first?.data).toMatchObject({ id: expect.stringMatching(/^[0-9a-f]{32}$/), event: 'reset' });
      expect(first?.data.id).not.toBe(id);
    }
    await create('three');
    for (const id of ['f'.repeat(32), 'nonsense', `${'0'.repeat(31)}1`]) {
      const path = '/v1/environments/fuse-three/events';
      const [first] = await open(path, { 'last-event-id': id }, () => true).frames;
      expect(first?.data).toMatchObject({ event: 'reset', vm_id: 'fuse-three', state: 'running' });
    }
    const [plain] = await open('/v1/environments/fuse-three/events', {}, () => true).frames;
    expect(plain?.data).toMatchObject({ event: 'state', state: 'running' });
  });

  it('tell the steps of a start', async () => {
    await create('four', { startup_script: 'true', files: { '/root/a': 'YQ==' } });
    const all = await open(
      '/v1/events',
      { 'last-event-id': '0'.repeat(32) },
      ({ data }) => data.vm_id === 'fuse-four' && data.state === 'running',
    ).frames;
    const steps = all.filter(({ data }) => data.vm_id === 'fuse-four' && data.event === 'step').map(({ data }) => data);
    expect(steps.map(({ step }) => [step.index, step.total, step.key])).toEqual([
      [0, 3, 'template'],
      [1, 3, 'files'],
      [2, 3, 'script'],
    ]);
    for (const { state, step } of steps) {
      expect(state).toBe('provisioning');
      expect(Number.isInteger(step.duration_ms)).toBe(true);
    }
  });

  it('end at once when nothing can come any more', async () => {
    await create('five');
    const followed = open('/v1/environments/fuse-five/events', {}, destroyed('fuse-five'));
    await followed.begun;
    await test.call('DELETE', '/v1/environments/fuse-five');
    const last = (await followed.frames).at(-1);
    const again = open('/v1/environments/fuse-five/events', { 'last-event-id': last?.id ?? '' }, () => false);
    expect(await again.frames).toEqual([]);
  });
});
