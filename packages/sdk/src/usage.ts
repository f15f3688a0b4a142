import { Usage, UsageHistory } from '@fuse/contract';
import type { CallOptions } from './run-outputs.ts';
import type { Transport } from './transport.ts';

export interface UsageHistoryOptions extends CallOptions {
  /** RFC 3339, or a Date. Default: the last 24 hours. */
  from?: Date | string | undefined;
  to?: Date | string | undefined;
}

/** What the caller's tenant has, and had. */
export class UsageReports {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** What it has now, beside its quotas. */
  now(options: CallOptions = {}): Promise<Usage> {
    return this.#transport.json(Usage, { method: 'GET', path: '/v1/usage', repeat: 'freely', ...options });
  }

  /** By the hour. */
  history({ from, to, signal }: UsageHistoryOptions = {}): Promise<UsageHistory> {
    return this.#transport.json(UsageHistory, {
      method: 'GET',
      path: '/v1/usage/history',
      query: { from: timeText(from), to: timeText(to) },
      repeat: 'freely',
      signal,
    });
  }
}

export const timeText = (time: Date | string | undefined): string | undefined =>
  time instanceof Date ? time.toISOString() : time;
