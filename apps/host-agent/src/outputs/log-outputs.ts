/** An exec's streams as objects: each one alone, and the frame stream that both came in. */
import { createReadStream } from 'node:fs';
import { Readable } from 'node:stream';
import { frameType } from '@fuse/contract';
import type { CollectedOutputs } from '@fuse/host-protocol';
import type { ObjectStore } from '@fuse/object-store';
import type { Exec } from '../execs/exec.ts';
import { framesOfFile } from '../execs/frame-file.ts';
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
  const { path, bytes } = exec.logFile;
  const framesObjectKey = `${keyPrefix}/frames`;
  const saveFrames = async (stop: AbortSignal) => {
    const body = bytes === 0 ? Readable.from([]) : createReadStream(path, { end: bytes - 1 });
    await store.put(framesObjectKey, body, { contentType: 'application/octet-stream', signal: stop });
    return [];
  };
  const saveStream = (stream: (typeof streams)[number]) => async (stop: AbortSignal) => {
    if (!(await holdsType(path, bytes, stream.type))) return [];
    const body = Readable.from(payloadsOf(path, bytes, stream.type), { objectMode: false });
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

async function holdsType(path: string, bytes: number, type: number): Promise<boolean> {
  for await (const frame of framesOfFile(path, bytes)) if (frame.type === type && frame.payload.length > 0) return true;
  return false;
}

async function* payloadsOf(path: string, bytes: number, type: number): AsyncGenerator<Uint8Array> {
  for await (const frame of framesOfFile(path, bytes))
    if (frame.type === type && frame.payload.length > 0) yield frame.payload;
}
