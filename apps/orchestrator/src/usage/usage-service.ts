/** What a tenant uses: now, in the terms of its quotas, and over time, by the hour. */
import type { Usage, UsageHistory } from '@fuse/contract';
import type { Db } from '../db/db.ts';
import { createsBy, limitsOf, outputBytesOf, reservedBy, snapshotBytesOf } from '../quotas/quota-store.ts';
import { type UsedInHour, usageByHour } from './metering.ts';

export class UsageService {
  readonly #db: Db;

  constructor(db: Db) {
    this.#db = db;
  }

  now(tenantId: string): Promise<Usage> {
    // One snapshot of the database: the figures belong together.
    return this.#db.transaction(async (tx) => {
      const { environments, cpus, ram_mb, storage_gb } = await reservedBy(tx, tenantId);
      const { used: creates_per_minute } = await createsBy(tx, tenantId);
      const snapshot_bytes = await snapshotBytesOf(tx, tenantId);
      const output_bytes = await outputBytesOf(tx, tenantId);
      const quotas = (await limitsOf(tx, tenantId))?.quotas ?? {};
      return {
        tenant_id: tenantId,
        used: { environments, cpus, ram_mb, storage_gb, creates_per_minute, snapshot_bytes, output_bytes },
        quotas,
        at: new Date().toISOString(),
      };
    }, 'repeatable read');
  }

  async history(tenantId: string, { from, to }: { from: Date; to: Date }): Promise<UsageHistory> {
    const hours = await usageByHour(this.#db.query, { tenantId, from, to });
    return {
      tenant_id: tenantId,
      from: from.toISOString(),
      to: to.toISOString(),
      hours: hours.map(({ hour, ...used }) => ({ hour: hour.toISOString(), ...rounded(used) })),
      total: rounded({
        vcpu_seconds: sum(hours, 'vcpu_seconds'),
        gib_seconds: sum(hours, 'gib_seconds'),
        stored_byte_seconds: sum(hours, 'stored_byte_seconds'),
        egress_bytes: sum(hours, 'egress_bytes'),
      }),
    };
  }
}

type Consumption = Omit<UsedInHour, 'hour'>;

const sum = (hours: readonly UsedInHour[], key: keyof Consumption): number =>
  hours.reduce((total, hour) => total + hour[key], 0);

/** To the millisecond: what is behind is noise of sums. */
const rounded = (used: Consumption): Consumption => ({
  vcpu_seconds: toThousandths(used.vcpu_seconds),
  gib_seconds: toThousandths(used.gib_seconds),
  stored_byte_seconds: toThousandths(used.stored_byte_seconds),
  egress_bytes: used.egress_bytes,
});
const toThousandths = (value: number): number => Math.round(value * 1_000) / 1_000;
