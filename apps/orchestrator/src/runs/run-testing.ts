/** For tests of runs: small things said often. */
import type { Run, RunState } from '@fuse/contract';
import { isTerminalRunState } from '@fuse/contract';
import { sleep } from '@fuse/runtime';
import type { callerOf, TestOrchestrator } from '../test-orchestrator.ts';
import { parseServerSentEvents } from './sse-testing.ts';

export type Call = ReturnType<typeof callerOf>;

export async function create(call: Call, body: unknown, headers: Record<string, string> = {}): Promise<Run> {
  const answer = await call('POST', '/v1/runs', body, { headers });
  if (answer.status !== 200 && answer.status !== 202)
    throw new Error(`create answered ${answer.status}: ${JSON.stringify(answer.body)}`);
  return answer.body as Run;
}

export const runToEnd = (call: Call, body: object): Promise<Run> => create(call, { ...body, wait: true });

export async function get(call: Call, id: string): Promise<Run> {
  return (await call('GET', `/v1/runs/${id}`)).body as Run;
}

/** Looks again until `holds`; fails with what it saw last. */
export async function until<T>(look: () => Promise<T> | T, holds: (seen: T) => boolean, withinMs = 15_000): Promise<T> {
  const giveUpAt = performance.now() + withinMs;
  for (;;) {
    const seen = await look();
    if (holds(seen)) return seen;
    if (performance.now() > giveUpAt) throw new Error(`still ${JSON.stringify(seen)}`);
    await sleep(5);
  }
}

export const untilState = (call: Call, id: string, ...states: RunState[]): Promise<Run> =>
  until(
    () => get(call, id),
    (run) => states.includes(run.state),
  );

export const untilEnded = (call: Call, id: string): Promise<Run> =>
  until(
    () => get(call, id),
    (run) => isTerminalRunState(run.state),
    30_000,
  );

/** Every VM is gone, and nothing is reserved. */
export const untilEmpty = ({ host }: Pick<TestOrchestrator, 'host'>): Promise<number> =>
  until(
    () => host.vms.size,
    (vms) => vms === 0,
  );

export interface RunEventSeen {
  id: string;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into events of every kind
  data: any;
}

export async function eventsOf(call: Call, id: string, lastEventId?: string): Promise<RunEventSeen[]> {
  const query = lastEventId === undefined ? '' : `?last_event_id=${lastEventId}`;
  const answer = await call('GET', `/v1/runs/${id}/events${query}`);
  if (answer.status !== 200) throw new Error(`events answered ${answer.status}: ${JSON.stringify(answer.body)}`);
  return parseServerSentEvents(answer.body as string);
}

export const statesIn = (events: readonly RunEventSeen[]): string[] =>
  events.filter(({ data }) => data.event === 'state').map(({ data }) => data.state);

export const bytesIn = (events: readonly RunEventSeen[], stream: 'stdout' | 'stderr'): Buffer =>
  Buffer.concat(
    events.filter(({ data }) => data.event === stream).map(({ data }) => Buffer.from(data.data_base64, 'base64')),
  );
