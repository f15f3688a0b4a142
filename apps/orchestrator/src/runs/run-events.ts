/**
 * A run's events from any position to its terminal state: its rows of `events`, and between the `running` row and the one after it
 * the output. Output is followed on the host while the command runs; once another row is there the rest of it is read to the end
 * before that row is delivered. Resuming at any position gives what was not delivered, byte for byte; at one that is none of this run's, `reset` and all of it.
 */
import { AppError, isTerminalRunState, type RunEvent, type RunState } from '@fuse/contract';
import { type Logger, sleep } from '@fuse/runtime';
import type { EventRow, RunRow } from '../db/schema.ts';
import { type EventHub, eventById, eventsAfter } from '../events/events.ts';
import { type EventPosition, type FramePosition, START } from './event-position.ts';
import { outputChunks } from './output-chunks.ts';
import type { RunFailure } from './run.ts';
import { type LogContext, openRunLog } from './run-log-source.ts';
import { findRun } from './run-reads.ts';

export interface EventsContext extends LogContext {
  hub: EventHub;
  log: Logger;
}

export interface Delivery {
  position: EventPosition;
  event: RunEvent;
}

const FIRST_RETRY_MS = 10;
const RETRY_MS = 250;
/** How often the rest of an ended command's output is tried before it is given up: it lies on a host that is away. */
const REST_TRIES = 40;

export async function* runEvents(
  context: EventsContext,
  runId: string,
  from: EventPosition | undefined,
  signal: AbortSignal,
): AsyncGenerator<Delivery> {
  using waiter = context.hub.waiter(`run:${runId}`);
  const isKnown = from !== undefined && (await hasEvent(context, runId, from.row));
  if (!isKnown) yield { position: START, event: { event: 'reset', run_id: runId } };
  let { row: lastRow, output } = isKnown ? from : START;
  for (;;) {
    const rows = await eventsAfter(context.db.query, 'run', runId, 0);
    for (const row of rows) {
      if (row.id <= lastRow) continue;
      if (isBeyondRunning(stateOf(row)) && output !== 'end') {
        for await (const delivery of restOfOutput(context, runId, { row: lastRow, output }, signal)) {
          output = delivery.position.output;
          yield delivery;
        }
        output = 'end';
      }
      lastRow = row.id;
      yield { position: { row: lastRow, output }, event: stateEvent(runId, row) };
      if (isTerminalRunState(stateOf(row))) return;
    }
    const latest = rows.at(-1);
    if (latest === undefined || isTerminalRunState(stateOf(latest))) return; // collected meanwhile, or nothing is left to tell
    if (stateOf(latest) === 'running' && output !== 'end') {
      for await (const delivery of liveOutput(context, runId, { row: lastRow, output }, signal)) {
        output = delivery.position.output;
        yield delivery;
      }
    }
    await waiter.next(signal);
  }
}

async function hasEvent(context: EventsContext, runId: string, row: number): Promise<boolean> {
  if (row === START.row) return true;
  const event = await eventById(context.db.query, 'run', row);
  return event?.subject_id === runId;
}

/** While the command runs. Ends with the stream, or when a further row is there; a host that is away is asked again. */
async function* liveOutput(
  context: EventsContext,
  runId: string,
  from: EventPosition & { output: FramePosition },
  signal: AbortSignal,
): AsyncGenerator<Delivery> {
  const moved = new AbortController();
  const watching = new AbortController();
  const either = AbortSignal.any([signal, moved.signal]);
  const watch = untilNextRow(context, runId, from.row, AbortSignal.any([signal, watching.signal])).then(
    () => moved.abort(new Error('the run went on')),
    () => {}, // the stream ended first
  );
  let at = from;
  try {
    for (let delayMs = FIRST_RETRY_MS; !moved.signal.aborted; delayMs = Math.min(delayMs * 1.5, RETRY_MS)) {
      try {
        const run = await findRun(context.db.query, runId);
        if (run === undefined) return;
        for await (const delivery of output(context, run, at, { follow: true, signal: either })) {
          if (delivery.position.output !== 'end') at = { ...at, output: delivery.position.output };
          yield delivery;
          delayMs = FIRST_RETRY_MS;
        }
        return;
      } catch (error) {
        signal.throwIfAborted();
        if (moved.signal.aborted) return;
        // Also right at the start: the row says `running` before the host is asked to start the command.
        context.log.debug({ err: error, run_id: runId }, 'live output interrupted');
      }
      await sleep(delayMs, either).catch(() => {});
      signal.throwIfAborted();
    }
  } finally {
    watching.abort();
    await watch;
  }
}

async function untilNextRow(
  context: EventsContext,
  runId: string,
  afterRow: number,
  signal: AbortSignal,
): Promise<void> {
  using waiter = context.hub.waiter(`run:${runId}`);
  while ((await eventsAfter(context.db.query, 'run', runId, afterRow, 1)).length === 0) await waiter.next(signal);
}

/** The command has ended: what is left of its output, wherever it is by now. */
async function* restOfOutput(
  context: EventsContext,
  runId: string,
  from: EventPosition & { output: FramePosition },
  signal: AbortSignal,
): AsyncGenerator<Delivery> {
  let at = from;
  for (let tries = 1; ; tries += 1) {
    const run = await findRun(context.db.query, runId);
    if (run === undefined || run.started_at === null) return;
    // Its VM is gone and nothing was saved: the output is lost, as the run's error says.
    if (isTerminalRunState(run.state) && run.frames_object_key === null) return;
    try {
      for await (const delivery of output(context, run, at, { follow: false, signal })) {
        if (delivery.position.output !== 'end') at = { ...at, output: delivery.position.output };
        yield delivery;
      }
      if (run.log_truncated === true)
        yield { position: { row: at.row, output: 'end' }, event: { event: 'truncated', run_id: runId } };
      return;
    } catch (error) {
      signal.throwIfAborted();
      // A position that the log never had: asking again changes nothing.
      if (error instanceof AppError && error.code === 'invalid_argument') throw error;
      context.log.debug({ err: error, run_id: runId, tries }, 'output of an ended command not readable yet');
      if (tries >= REST_TRIES) throw error;
    }
    await sleep(RETRY_MS, signal);
  }
}

async function* output(
  context: EventsContext,
  run: RunRow,
  from: EventPosition & { output: FramePosition },
  { follow, signal }: { follow: boolean; signal: AbortSignal },
): AsyncGenerator<Delivery> {
  const bytes = await openRunLog(context, run, { offset: from.output.frameStart, follow, signal });
  for await (const chunk of outputChunks(bytes, from.output)) {
    signal.throwIfAborted();
    yield {
      position: { row: from.row, output: chunk.after },
      event: {
        event: chunk.stream,
        run_id: run.id,
        data_base64: Buffer.from(chunk.bytes).toString('base64'),
      },
    };
  }
}

const stateOf = (row: EventRow): RunState => row.data.state as RunState; // written by run-store only
const isBeyondRunning = (state: RunState): boolean => state === 'saving' || isTerminalRunState(state);

function stateEvent(runId: string, row: EventRow): RunEvent {
  const error = row.data.error as RunFailure | undefined; // written by run-store only
  return {
    event: 'state',
    run_id: runId,
    state: stateOf(row),
    ...(error === undefined ? {} : { error }),
    at: row.at.toISOString(),
  };
}
