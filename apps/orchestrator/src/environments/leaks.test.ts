/** Environments that come and go leave nothing: not in this process, not on the machine, not in the database. The same with 10,000: bench/leaks.mjs. */
import { expectNoLeaks, resourceSnapshot, temporaryDirectory } from '@fuse/testing';
import { expect, it, vi } from 'vitest';
import { openDatabase } from '../db/open.ts';
import { quiet } from '../db/test-database.ts';
import { churn, startForgetful, whatIsLeft } from './churn-testing.ts';

const LIVES = 1_200;
const WARM_UP = 300;
/** Connections of pools and caches come and go with the load. */
const DESCRIPTORS = 40;
const HEAP_BYTES = 6 * 1024 * 1024;

it('1,500 environments, made and destroyed in every way, leave everything as it was', {
  timeout: 300_000,
}, async () => {
  await using directory = await temporaryDirectory();
  vi.stubEnv('TMPDIR', directory.path); // whatever is put into a temporary directory is seen
  const before = await resourceSnapshot({ directories: [directory.path] });
  {
    await using system = await startForgetful();
    await using db = await openDatabase(system.location, quiet);
    await churn(system.call, { lives: WARM_UP, atOnce: 8, round: 'warm-up' });
    const first = await whatIsLeft(system, db);
    await churn(system.call, { lives: LIVES, atOnce: 8, round: 'round' });
    const last = await whatIsLeft(system, db);
    expect(last.rows).toEqual(first.rows);
    expect(last.rows.reservations).toBe(0);
    expect((await system.call('GET', '/v1/hosts/host-1')).body.allocated).toMatchObject({ cpus: 0, vm_count: 0 });
    expect(last.held.processes).toBe(first.held.processes);
    expect(last.held.mounts).toBe(first.held.mounts);
    expect(last.held.threads).toBeLessThanOrEqual(first.held.threads + 2);
    expect(last.held.descriptors).toBeLessThanOrEqual(first.held.descriptors + DESCRIPTORS);
    expect(last.heapBytes - first.heapBytes).toBeLessThan(HEAP_BYTES);
  }
  await expectNoLeaks(before);
});
