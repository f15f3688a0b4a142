/** For tests. */
import { createSealer } from './aes-sealer.ts';

export const testSealingKeys = { current: Buffer.alloc(32, 'key of the tests'), old: undefined };
export const testSealer = createSealer(testSealingKeys);
