/** What a VM's record keeps of its connections, since the gateway does not. */
import { GatewayTotals } from '@fuse/host-protocol';
import type { z } from 'zod';

export const NetworkPast = GatewayTotals.omit({ id: true, slot: true, open: true });
export type NetworkPast = z.infer<typeof NetworkPast>;
