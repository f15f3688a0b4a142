/**
 * The gateway's control group, `fuse-gateway-<data directory>` beside that of VMs, whose memory is limited: a gateway that takes too much is ended, and not the host. Go keeps to a soft limit; the
 * group's is twice that, since it may hold sockets' buffers too (version 2).
 */
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Logger } from '@fuse/runtime';
import { Cgroup } from '../confinement/cgroup.ts';
import type { ConfinementMode } from '../confinement/confinement.ts';
import { type Hierarchy, hostHierarchies } from '../confinement/hierarchies.ts';

const MIB = 1_048_576;
const HARD_PER_SOFT = 2;

export interface GatewayMemory {
  /** What it may take, but for moments. */
  softMiB: number;
  groupName: string;
  confinement: ConfinementMode;
  log: Logger;
}

/** `fuse-gateway-<8 hex digits>`, by the prefix of the slots' names. */
export const gatewayGroupName = (prefix: string): string => prefix.replace('fuse-', 'fuse-gateway-').replace(/-$/, '');

/** Its directory, empty; undefined where there is none. What an earlier gateway left in it is ended. */
export async function makeGatewayGroup(memory: GatewayMemory): Promise<string | undefined> {
  const { softMiB, confinement, log } = memory;
  const hierarchy = hierarchyFor(memory);
  if (hierarchy === undefined) return undefined;
  const group = groupOf(hierarchy, memory);
  try {
    await group.remove();
    if (hierarchy.version === 2) writeFileSync(join(hierarchy.mountPath, 'cgroup.subtree_control'), '+memory');
    group.createForMemory(HARD_PER_SOFT * softMiB * MIB);
    return group.procsPaths.map(dirname)[0];
  } catch (error) {
    if (confinement === 'required') throw error;
    log.error({ err: error }, 'the memory of the gateway has no hard limit');
    return undefined;
  }
}

/** With the gateway, if it is in it. */
export async function removeGatewayGroup(memory: GatewayMemory): Promise<void> {
  const hierarchy = hierarchyFor(memory);
  if (hierarchy !== undefined) await groupOf(hierarchy, memory).remove();
}

/** Who is in it. */
export function gatewayGroupPids(memory: GatewayMemory): number[] {
  const hierarchy = hierarchyFor(memory);
  return hierarchy === undefined ? [] : groupOf(hierarchy, memory).pids;
}

function hierarchyFor({ confinement }: GatewayMemory): Hierarchy | undefined {
  if (confinement === 'off' || process.geteuid?.() !== 0) return undefined;
  const found = hostHierarchies().find(({ controllers }) => controllers.includes('memory'));
  return found && { ...found, controllers: ['memory'] };
}

const groupOf = (hierarchy: Hierarchy, { groupName }: GatewayMemory): Cgroup => new Cgroup([hierarchy], groupName, '');
