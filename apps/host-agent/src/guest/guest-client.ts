/** The Guest of a VMM, over its channel. */
import { AppError } from '@fuse/contract';
import type { Logger } from '@fuse/runtime';
import type { Vmm } from '../vmm/driver.ts';
import type { Guest } from './guest.ts';

/**
 * Returns at once and connects in the background; calls wait for the channel, each within its own deadline. The channel reconnects by
 * itself while the VMM lives; once it exited every call fails with `vm_lost`. Disposing closes the channel and leaves the VMM alone.
 */
export function connectGuest(_vmm: Vmm, _options: { log: Logger }): Guest {
  throw new AppError('unimplemented', 'guest client');
}
