/** Calls that make something: repeated only where that cannot make it twice. */
import type { CallOptions } from './run-outputs.ts';
import type { Call } from './transport.ts';

export interface KeyedOptions extends CallOptions {
  /** Names what is made, for a day: sent again after a lost answer, it is the same. */
  idempotencyKey?: string;
}

export const onceUnder = ({ idempotencyKey, signal }: KeyedOptions): Pick<Call, 'repeat' | 'headers' | 'signal'> =>
  idempotencyKey === undefined
    ? { repeat: 'if-unsent', signal }
    : { repeat: 'freely', headers: { 'Idempotency-Key': idempotencyKey }, signal };
