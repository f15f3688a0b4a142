/** What the host agent says of itself. */
import { z } from 'zod';
import type { LocalStack } from './local-file.ts';

const Capacity = z.object({
  cpus: z.number(),
  ram_mb: z.number(),
  storage_gb: z.number(),
  vm_count: z.number(),
  accelerator: z.enum(['kvm', 'tcg']),
  confined: z.boolean().optional(), // absent: of a stack that an older version started
});
const Vms = z.object({ vms: z.array(z.object({ shape: z.object({ cpus: z.number(), ram_mb: z.number() }) })) });

export interface HostReport {
  capacity: { cpus: number; ram_mb: number; storage_gb: number; vm_count: number };
  used: { cpus: number; ram_mb: number; vm_count: number };
  accelerator: 'kvm' | 'tcg';
  confined?: boolean | undefined;
}

const ANSWER_MS = 5_000;

export async function hostReport(stack: Pick<LocalStack, 'host_url' | 'host_token'>): Promise<HostReport> {
  const ask = async <T extends z.ZodType>(path: string, schema: T): Promise<z.infer<T>> => {
    const response = await fetch(new URL(path, stack.host_url), {
      headers: { authorization: `Bearer ${stack.host_token}` },
      signal: AbortSignal.timeout(ANSWER_MS),
    });
    if (!response.ok) throw new Error(`the host agent answered ${response.status}`);
    return schema.parse(await response.json());
  };
  const [{ accelerator, confined, ...capacity }, { vms }] = await Promise.all([
    ask('/v1/capacity', Capacity),
    ask('/v1/vms', Vms),
  ]);
  const used = {
    cpus: vms.reduce((sum, vm) => sum + vm.shape.cpus, 0),
    ram_mb: vms.reduce((sum, vm) => sum + vm.shape.ram_mb, 0),
    vm_count: vms.length,
  };
  return { capacity, used, accelerator, confined };
}

const EMULATED =
  'warning: no usable KVM: VMs are emulated (TCG), slow and no security boundary against hostile code; see fuse doctor';
const NOT_CONFINED =
  'warning: VMMs are not confined: a guest that breaks out of its VMM can do all that the host agent can; see fuse doctor';

/** What has to be said of it every time. */
export function warningsOf({ accelerator, confined }: Pick<HostReport, 'accelerator' | 'confined'>): string[] {
  return [...(accelerator === 'kvm' ? [] : [EMULATED]), ...(confined === false ? [NOT_CONFINED] : [])];
}
