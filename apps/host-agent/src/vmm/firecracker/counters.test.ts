import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { temporaryDirectory } from '@fuse/testing';
import { expect, it } from 'vitest';
import { Counters, makeCounterPipe } from './counters.ts';

it('sums what is counted, whatever else comes out of the pipe', async () => {
  await using directory = await temporaryDirectory('fuse-counters-');
  const path = join(directory.path, 'counters');
  const counters = new Counters(path);
  counters.collect();
  await makeCounterPipe(path);
  counters.collect();
  const pipe = await open(path, constants.O_RDWR | constants.O_NONBLOCK); // as Firecracker opens it
  try {
    const line = {
      utc_timestamp_ms: 1,
      block: { execute_fails: 2, rate_limiter_throttled_events: 3 },
      seccomp: { num_faults: 0 },
    };
    await pipe.write(
      `{"cut off\n${JSON.stringify(line)}\n${JSON.stringify({ block: 'none', vsock: { conns_added: -1 } })}\n`,
    );
    const text = JSON.stringify(line);
    await pipe.write(text.slice(0, 20));
    counters.collect();
    expect(counters.totals).toEqual({ 'block.execute_fails': 2, 'block.rate_limiter_throttled_events': 3 });
    await pipe.write(`${text.slice(20)}\n`);
    counters.collect();
    expect(counters.totals).toEqual({ 'block.execute_fails': 4, 'block.rate_limiter_throttled_events': 6 });
  } finally {
    await pipe.close();
  }
});
