/** What a guest may reach, on the command line. */
import { type Egress, egressLevels } from '@fuse/contract';
import type { GivenNetworkPolicy } from '@fuse/sdk';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { usageError } from '../cli-error.ts';
import { gatherText } from './key-value.ts';

export interface NetworkFlags {
  egress?: Egress;
  allow?: string[];
  deny?: string[];
}

export const addNetworkOptions = (command: Command): Command =>
  command
    .addOption(
      new Option('--egress <level>', 'what it may reach (default: what its tenant or snapshot has, else none)').choices(
        [...egressLevels],
      ),
    )
    .option(
      '--allow <rule>',
      'with an allow-list: pypi.org, *.npmjs.org:443, 203.0.113.0/24:8000-8100; may be repeated',
      gatherText,
    )
    .option('--deny <rule>', 'never this, whatever else is allowed; may be repeated', gatherText);

/** Undefined: nothing was said of it. `--allow` alone is an allow-list. */
export function networkOf({ egress, allow, deny }: NetworkFlags): GivenNetworkPolicy | undefined {
  const level = egress ?? (allow === undefined ? undefined : 'allowlist');
  if (level !== undefined) return { egress: level, allow, deny };
  if (deny === undefined) return undefined;
  throw usageError('--deny says what is left out, not of what', { hint: 'add --egress internet, or --allow' });
}

const isLevel = (text: string): text is Egress => (egressLevels as readonly string[]).includes(text);

/** A level, or a policy as JSON; the server says what is wrong with its rules. */
export function parsePolicy(text: string): GivenNetworkPolicy {
  if (isLevel(text)) return { egress: text };
  try {
    const policy: unknown = JSON.parse(text);
    if (typeof policy === 'object' && policy !== null) return policy as GivenNetworkPolicy; // checked by the server
  } catch {
    // said below
  }
  throw new InvalidArgumentError(
    `Write ${egressLevels.join(', ')}, or JSON such as '{"egress":"allowlist","allow":["pypi.org"]}'.`,
  );
}
