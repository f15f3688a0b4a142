/**
 * How often a login may fail, by this process: ten times at once and then every six seconds from one address (an IPv6 network of 64 bits counts as one), a hundred times at
 * once and then once a second from all together. An attempt is counted before its token is looked at, so that many at once are no way around it, and given back when it was right.
 */
import { isIPv6 } from 'node:net';
import { AppError } from '@fuse/contract';
import type { Clock } from '@fuse/runtime';
import { type BucketSize, TokenBuckets } from '../http/token-buckets.ts';

export interface LoginLimits {
  ofAddress: BucketSize;
  ofAll: BucketSize;
}

export const defaultLoginLimits: LoginLimits = {
  ofAddress: { burst: 10, perSecond: 1 / 6 },
  ofAll: { burst: 100, perSecond: 1 },
};

const ALL = 'all';
const QUOTA = 'login_attempts';

export class LoginAttempts {
  readonly #ofAddress: TokenBuckets;
  readonly #ofAll: TokenBuckets;

  constructor(clock: Clock, { ofAddress, ofAll }: LoginLimits = defaultLoginLimits) {
    this.#ofAddress = new TokenBuckets(ofAddress, clock);
    this.#ofAll = new TokenBuckets(ofAll, clock);
  }

  /** Throws 429 with Retry-After when there were too many. `succeeded` takes the attempt back. */
  begin(remoteAddress: string | undefined): { succeeded: () => void } {
    const network = networkOf(remoteAddress ?? '');
    const own = this.#ofAddress.take(network);
    if (own.isOver) throw tooMany('from this address', own.retryAfterSeconds);
    const all = this.#ofAll.take(ALL);
    if (all.isOver) throw tooMany('', all.retryAfterSeconds);
    return {
      succeeded: () => {
        this.#ofAddress.giveBack(network);
        this.#ofAll.giveBack(ALL);
      },
    };
  }
}

function tooMany(where: string, retryAfterSeconds: number): AppError {
  return new AppError('quota_exceeded', `too many failed logins${where === '' ? '' : ` ${where}`}`, {
    details: { quota: QUOTA },
    hint: 'Wait, then log in again. Requests with an Authorization header are not held up.',
    retryAfterSeconds,
  });
}

const MAPPED = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i;

/** Of IPv6 the first 64 bits, which whoever has one address has. */
export function networkOf(address: string): string {
  const mapped = MAPPED.exec(address)?.[1];
  if (mapped !== undefined || !isIPv6(address)) return mapped ?? address;
  const [head = '', tail = ''] = address.replace(/%.*$/, '').split('::');
  const groups = (part: string) => part.split(':').filter((group) => group !== '');
  const zeros = 8 - groups(head).length - groups(tail).length;
  const whole = address.includes('::')
    ? [...groups(head), ...Array<string>(Math.max(0, zeros)).fill('0'), ...groups(tail)]
    : groups(head);
  return whole
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(':');
}
