import type { EnvironmentInfo } from '@fuse/sdk';
import { formatMs, printable, properties } from './format.ts';
import { labelsText } from './host-text.ts';
import { policyText } from './network-text.ts';

export const environmentHeadings = ['ID', 'STATE', 'TASK', 'HOST', 'IMAGE', 'CREATED'] as const;

export const environmentRow = (environment: EnvironmentInfo): string[] => [
  environment.id,
  environment.state,
  environment.task_id,
  environment.host_id ?? '',
  environment.spec.image ?? '',
  environment.created_at,
];

export function environmentText(environment: EnvironmentInfo): string {
  const { spec, queued } = environment;
  return properties({
    id: environment.id,
    state: environment.state,
    task: environment.task_id,
    host: environment.host_id,
    waits: queued === undefined ? undefined : `for room, until ${queued.until}: ${queued.reason}`,
    tags: labelsText(environment.labels ?? {}),
    image: spec.image,
    cpus: spec.cpus?.toString(),
    'ram mb': spec.ram_mb?.toString(),
    'storage gb': spec.storage_gb?.toString(),
    gpus: spec.gpus ? [spec.gpus, spec.gpu_kind, spec.gpu_profile].filter((part) => part).join(' ') : undefined,
    region: spec.region,
    labels: labelsText(spec.labels ?? {}),
    seed: environment.seed_snapshot_id,
    'when idle': idleText(environment),
    'auto resume': environment.auto_resume === true ? 'yes' : undefined,
    checkpoints: checkpointText(environment),
    health: environment.health === undefined ? undefined : healthText(environment.health),
    endpoints: endpointsText(environment),
    network: networkSummary(environment),
    error: environment.error,
    paused: environment.paused_at,
    ends: environment.expires_at,
    created: environment.created_at,
    updated: environment.updated_at,
  });
}

/** What the guest says of itself is for people alone. */
export const healthText = ({ state, failures = 0, message }: NonNullable<EnvironmentInfo['health']>): string =>
  [
    state,
    failures === 0 ? '' : `${failures} ${failures === 1 ? 'failure' : 'failures'}`,
    message === undefined ? '' : printable(message),
  ]
    .filter((part) => part !== '')
    .join(', ');

function endpointsText({ endpoints = [] }: EnvironmentInfo): string | undefined {
  return endpoints.length === 0
    ? undefined
    : endpoints.map(({ as, port, url }) => `${as === undefined ? port : `${as} (${port})`} at ${url}`).join('; ');
}

function idleText({ idle_action, spec: { idle_timeout_seconds: seconds = 0 } }: EnvironmentInfo): string | undefined {
  return seconds === 0 ? undefined : `${idle_action ?? 'destroy'} after ${formatMs(seconds * 1_000)}`;
}

function checkpointText(environment: EnvironmentInfo): string | undefined {
  const { checkpoint_interval_seconds: seconds = 0, checkpoint_keep: keep } = environment;
  if (seconds === 0) return undefined;
  return `every ${formatMs(seconds * 1_000)}${keep === undefined ? '' : `, the last ${keep} kept`}`;
}

/** Of one without any nothing is said. */
function networkSummary({ network }: EnvironmentInfo): string | undefined {
  return network === undefined || network.egress === 'none' ? undefined : policyText(network);
}
