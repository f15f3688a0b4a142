import type { EnvironmentInfo } from '@fuse/sdk';
import { properties } from './format.ts';

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
  const { spec } = environment;
  const labels = Object.entries(spec.labels ?? {}).map(([key, value]) => `${key}=${value}`);
  return properties({
    id: environment.id,
    state: environment.state,
    task: environment.task_id,
    host: environment.host_id,
    image: spec.image,
    cpus: spec.cpus?.toString(),
    'ram mb': spec.ram_mb?.toString(),
    'storage gb': spec.storage_gb?.toString(),
    labels: labels.length === 0 ? undefined : labels.join(' '),
    error: environment.error,
    created: environment.created_at,
    updated: environment.updated_at,
  });
}
