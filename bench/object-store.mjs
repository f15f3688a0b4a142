#!/usr/bin/env node
/**
 * Puts and gets of both object store adapters: 100 MiB as a stream, and 4 KiB. Beside the files stands their floor: the same bytes
 * hashed, written, flushed and renamed with nothing around it, and read and hashed. S3 is a real server (versitygw) on this machine.
 * Usage: node bench/object-store.mjs [N of 100 MiB, default 15] [N of 4 KiB, default 200]
 */
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createReadStream } from 'node:fs';
import { open, rename } from 'node:fs/promises';
import { cpus, loadavg, release, totalmem } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { openObjectStore } from '@fuse/object-store';
import { startS3Server, temporaryDirectory, VERSITYGW_VERSION } from '@fuse/testing';

const largeCount = Number(process.argv[2] ?? 15);
const smallCount = Number(process.argv[3] ?? 200);
const MIB = 1024 * 1024;
const block = randomBytes(MIB);

/** 64 KiB chunks, as a file or a socket gives them. */
function* chunksOf(sizeBytes) {
  for (let at = 0; at < sizeBytes; at += 65_536) yield block.subarray(0, Math.min(65_536, sizeBytes - at));
}

async function readAll(body) {
  let sizeBytes = 0;
  body.on('data', (chunk) => {
    sizeBytes += chunk.length;
  });
  await once(body, 'end');
  return sizeBytes;
}

async function measure(what, sizeBytes, count, work) {
  const times = [];
  for (let index = 0; index < count + 1; index += 1) {
    const start = performance.now();
    await work(index);
    if (index > 0) times.push(performance.now() - start); // the first one warms up
  }
  times.sort((a, b) => a - b);
  const at = (quantile) => times[Math.min(times.length - 1, Math.ceil(quantile * times.length) - 1)];
  const cells = [at(0.5), at(0.95), at(0.99)].map((ms) => ms.toFixed(1).padStart(9));
  const rate = sizeBytes >= MIB ? `${(sizeBytes / MIB / (at(0.5) / 1000)).toFixed(0).padStart(6)} MiB/s` : '';
  console.log(`${what.padEnd(22)} ${String(count).padStart(4)} ${cells.join(' ')} ${rate}`);
}

async function benchStore(name, store) {
  for (const [size, sizeBytes, count] of [
    ['100 MiB', 100 * MIB, largeCount],
    ['4 KiB', 4_096, smallCount],
  ]) {
    const put = (key) => store.put(key, Readable.from(chunksOf(sizeBytes), { objectMode: false }));
    await measure(`${name} put ${size}`, sizeBytes, count, (index) => put(`bench/${index % 2}`));
    await put('bench/get');
    await measure(`${name} get ${size}`, sizeBytes, count, async () => {
      const { body } = await store.get('bench/get');
      if ((await readAll(body)) !== sizeBytes) throw new Error('short read');
    });
    await store.deletePrefix('bench');
  }
}

async function benchFloor(directory) {
  const path = join(directory, 'floor');
  const sizeBytes = 100 * MIB;
  await measure('floor put 100 MiB', sizeBytes, largeCount, async () => {
    const hash = createHash('sha256');
    const file = await open(`${path}.tmp`, 'w');
    for (const chunk of chunksOf(sizeBytes)) {
      hash.update(chunk);
      await file.write(chunk);
    }
    await file.sync();
    await file.close();
    await rename(`${path}.tmp`, path);
  });
  await measure('floor get 100 MiB', sizeBytes, largeCount, async () => {
    const hash = createHash('sha256');
    for await (const chunk of createReadStream(path, { highWaterMark: 262_144 })) hash.update(chunk);
  });
}

const [cpu] = cpus();
console.log(
  `rig: ${cpus().length} x ${cpu?.model}, ${(totalmem() / 2 ** 30).toFixed(0)} GiB, Linux ${release()}, Node ${process.version}, ` +
    `versitygw ${VERSITYGW_VERSION}, load ${loadavg()[0]?.toFixed(1)}`,
);
console.log(`${'milliseconds'.padEnd(22)}    N       p50       p95       p99`);

const directory = await temporaryDirectory('fuse-bench-');
try {
  await benchFloor(directory.path);
  const files = await openObjectStore({ kind: 'file', directory: join(directory.path, 'store') });
  await files.check();
  await benchStore('files', files);
  const server = await startS3Server();
  const s3 = await openObjectStore(server.config);
  try {
    await s3.check();
    await benchStore('S3', s3);
  } finally {
    await s3[Symbol.asyncDispose]();
    await server[Symbol.asyncDispose]();
  }
} finally {
  await directory[Symbol.asyncDispose]();
}
