/** An exec's streams as objects: each one alone, and the frame stream that both came in. */
import { Readable } from 'node:stream';
import { frameType } from '@fuse/contract';
import type { CollectedOutputs } from '@fuse/host-protocol';
import type { ObjectStore } from '@fuse/object-store';
import type { Exec } from '../execs/exec.ts';
import { framesOfLog } from '../execs/frame-file.ts';
import { bytesOfParts, type LogView } from '../execs/log-parts.ts';
import { inParallel } from '../files/in-parallel.ts';

type SavedOutput = CollectedOutputs['outputs'][number];

const streams = [
  { path: '.fuse/stdout.log', name: 'stdout', type: frameType.stdout },
  { path: '.fuse/stderr.log', name: 'stderr', type: frameType.stderr },
] as const;

/** A stream without a byte has no log. */
export async function saveLogs(
  exec: Exec,
  store: ObjectStore,
  keyPrefix: string,
  signal: AbortSignal,
): Promise<{ outputs: SavedOutput[]; framesObjectKey: string }> {
  const { log } = exec;
  const framesObjectKey = `${keyPrefix}/frames`;
  const saveFrames = async (stop: AbortSignal) => {
    const body = Readable.from(bytesOfParts(log.parts), { objectMode: false });
    await store.put(framesObjectKey, body, { contentType: 'application/octet-stream', signal: stop });
    return [];
  };
  const saveStream = (stream: (typeof streams)[number]) => async (stop: AbortSignal) => {
    if (!(await holdsType(log, stream.type))) return [];
    const body = Readable.from(payloadsOf(log, stream.type), { objectMode: false });
    const { key, sizeBytes, sha256 } = await store.put(`${keyPrefix}/${stream.name}.log`, body, {
      contentType: 'text/plain; charset=utf-8',
      signal: stop,
    });
    return [{ path: stream.path, kind: 'log' as const, object_key: key, size_bytes: sizeBytes, sha256 }];
  };
  const jobs = [saveFrames, ...streams.map(saveStream)];
  const saved = await inParallel(jobs, jobs.length, signal, (job, stop): Promise<SavedOutput[]> => job(stop));
  return { outputs: saved.flat(), framesObjectKey };
}

async function holdsType(log: LogView, type: number): Promise<boolean> {
  for await (const frame of framesOfLog(log)) if (frame.type === type && frame.payload.length > 0) return true;
  return false;
}

async function* payloadsOf(log: LogView, type: number): AsyncGenerator<Uint8Array> {
  for await (const frame of framesOfLog(log)) if (frame.type === type && frame.payload.length > 0) yield frame.payload;
}
