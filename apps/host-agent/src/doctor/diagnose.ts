/** Runs every check side by side; one that hangs or throws is a finding like any other. */
import { setMaxListeners } from 'node:events';
import { AppError } from '@fuse/contract';
import { withDeadline } from '@fuse/runtime';
import { isolationCheck, kvmBootCheck } from './checks/accelerator.ts';
import { assetsCheck } from './checks/assets.ts';
import { confinementCheck, controlGroupsCheck } from './checks/confinement.ts';
import { cpuCheck } from './checks/cpu.ts';
import { kvmPermissionsCheck, networkToolsCheck } from './checks/devices.ts';
import { diskCheck } from './checks/disk.ts';
import { firecrackerCheck } from './checks/firecracker.ts';
import { goCheck } from './checks/go.ts';
import { kernelCheck } from './checks/kernel.ts';
import { memoryCheck } from './checks/memory.ts';
import { networkCheck } from './checks/network.ts';
import { nodeCheck } from './checks/node.ts';
import { portsCheck } from './checks/ports.ts';
import { programsCheck } from './checks/programs.ts';
import { qemuCheck } from './checks/qemu.ts';
import { reflinkCheck } from './checks/reflink.ts';
import { hyperThreadingCheck, mitigationsCheck, samePageMergingCheck, swapCheck } from './checks/side-channels.ts';
import { type Check, type CheckContext, fail, type NamedFinding } from './finding.ts';

/** Above the probe boots' own deadlines. */
const CHECK_DEADLINE_MS = 40_000;

const checks: readonly Check[] = [
  nodeCheck,
  cpuCheck,
  kvmBootCheck,
  isolationCheck,
  kvmPermissionsCheck,
  confinementCheck,
  controlGroupsCheck,
  firecrackerCheck,
  qemuCheck,
  programsCheck,
  assetsCheck,
  goCheck,
  diskCheck,
  reflinkCheck,
  memoryCheck,
  portsCheck,
  networkToolsCheck,
  networkCheck,
  kernelCheck,
  hyperThreadingCheck,
  mitigationsCheck,
  samePageMergingCheck,
  swapCheck,
];

export function diagnose(context: CheckContext, toRun: readonly Check[] = checks): Promise<NamedFinding[]> {
  setMaxListeners(toRun.length + 1, context.signal); // each check listens
  return Promise.all(
    toRun.map(async (check): Promise<NamedFinding> => {
      try {
        const finding = await withDeadline(
          CHECK_DEADLINE_MS,
          check.name,
          (signal) => check.run({ ...context, signal }),
          context.signal,
        );
        return { check: check.name, ...finding };
      } catch (error) {
        context.signal.throwIfAborted();
        const message = error instanceof Error ? error.message : String(error);
        return { check: check.name, ...fail(message, error instanceof AppError ? error.hint : undefined) };
      }
    }),
  );
}
