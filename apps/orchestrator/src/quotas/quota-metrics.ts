/** How often a quota or rate limit was in the way of a call. Which tenant's is in the audit log: tenants are too many for labels. */
import { AppError } from '@fuse/contract';
import { Counter, type Registry } from 'prom-client';
import type { App } from '../http/http-server.ts';

export function installQuotaMetrics(app: App, registry: Registry): void {
  const refusals = new Counter({
    name: 'orchestrator_quota_refusals_total',
    help: 'Calls refused because a quota or a rate limit was over',
    labelNames: ['quota'],
    registers: [registry],
  });
  app.addHook('onError', async (_request, _reply, error: unknown) => {
    if (error instanceof AppError && error.code === 'quota_exceeded')
      refusals.inc({ quota: error.details?.quota ?? 'other' });
  });
}
