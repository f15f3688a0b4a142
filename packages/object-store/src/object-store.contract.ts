/** What every adapter promises. Each runs it against the real thing behind it. */
import { buffer } from 'node:stream/consumers';
import { expectNoLeaks, type ResourceSnapshot, resourceSnapshot } from '@fuse/testing';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect } from 'vitest';
import { describeFailingPuts } from './contract/failing-puts.ts';
import { type Given, SLOW_MS, type StoreUnderTest } from './contract/given.ts';
import { describeKeys } from './contract/keys.ts';
import { describePuts } from './contract/puts.ts';
import { describeReads } from './contract/reads.ts';

/** The first test that needs the S3 server may have to build it. */
const SERVER_BUILD_MS = 600_000;

export function describeObjectStore(name: string, open: () => Promise<StoreUnderTest>): void {
  describe(`object store: ${name}`, () => {
    let under: StoreUnderTest;
    let beforeAnything: ResourceSnapshot;
    let before: ResourceSnapshot;
    beforeAll(async () => {
      beforeAnything = await resourceSnapshot();
      under = await open();
      await under.store.check();
    }, SERVER_BUILD_MS);
    afterAll(async () => {
      await under[Symbol.asyncDispose]();
      await expectNoLeaks(beforeAnything);
    });
    beforeEach(async () => {
      before = await resourceSnapshot();
    });
    afterEach(async () => {
      for (const prefix of ['t', 'u']) await under.store.deletePrefix(prefix);
      expect(await under.remains()).toEqual([]);
      if (!under.keepsConnections) await expectNoLeaks(before);
    }, SLOW_MS);

    const given: Given = {
      get under() {
        return under;
      },
      get store() {
        return under.store;
      },
      text: async (key) => String(await buffer((await under.store.get(key)).body)),
    };
    describePuts(given);
    describeFailingPuts(given);
    describeReads(given);
    describeKeys(given);
  });
}
