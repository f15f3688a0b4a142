/** A policy as it is given on the command line: a level, JSON, or `@FILE` with either. */
import type { GivenNetworkPolicy } from '@fuse/sdk';
import { parsePolicy } from '../args/network.ts';
import { scriptText } from './startup-files.ts';

export const policyOf = async (given: string | undefined): Promise<GivenNetworkPolicy | undefined> =>
  given === undefined ? undefined : parsePolicy((await scriptText(given)).trim());
