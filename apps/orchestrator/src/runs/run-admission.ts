/** What a run asks of environments: the same admission as anybody's. */
import type { RunRow } from '../db/schema.ts';
import type { Admission } from '../environments/environment-service.ts';

type Asking = Pick<RunRow, 'id' | 'tenant_id' | 'image' | 'cpus' | 'ram_mb' | 'storage_gb' | 'timeout_ms' | 'network'>;

/** For inputs, start and saving, beyond the command's own time. */
const OVERHEAD_SECONDS = 7_200;

export function admissionOf(run: Asking): Admission {
  const { id, image, cpus, ram_mb, storage_gb } = run;
  const max_runtime_seconds = Math.ceil(run.timeout_ms / 1_000) + OVERHEAD_SECONDS;
  return {
    tenantId: run.tenant_id,
    taskId: id,
    spec: { image, cpus, ram_mb, storage_gb, max_runtime_seconds },
    env: {},
    network: run.network,
    runId: id,
  };
}
