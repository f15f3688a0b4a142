import type { ObjectStore } from '../object-store.ts';

export interface StoreUnderTest extends AsyncDisposable {
  store: ObjectStore;
  /** Everything that the store keeps behind its back: objects, temporary files, parts of uploads. */
  remains(): Promise<string[]>;
  /** Open connections between operations are no leak, only after the store is disposed of. */
  keepsConnections: boolean;
  /** Flips one byte of the stored object, leaving its metadata alone. */
  damage(key: string, offset: number): Promise<void>;
}

/** What the parts of the contract work on; there once the suite's set-up has run. */
export interface Given {
  readonly under: StoreUnderTest;
  readonly store: ObjectStore;
  /** The whole object as UTF-8. */
  text(key: string): Promise<string>;
}

export const KIB = 1_024;
export const MIB = 1_024 * KIB;
export const SLOW_MS = 60_000;

export async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}
