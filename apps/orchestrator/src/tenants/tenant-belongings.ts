/** Why a tenant is not deleted: what it still has, and the commands that show and end that. */
import { AppError } from '@fuse/contract';
import type { Belongings } from './tenant-store.ts';

const KINDS = [
  { key: 'environments', name: 'environment', list: 'environment list --all', end: 'environment destroy' },
  { key: 'open_runs', name: 'open run', list: 'runs list', end: 'runs cancel' },
  { key: 'snapshots', name: 'snapshot', list: 'snapshot list', end: 'snapshot delete' },
] as const;

export function notEmpty(id: string, belongings: Belongings): AppError {
  const had = KINDS.filter(({ key }) => belongings[key] > 0);
  const counted = had.map(({ key, name }) => `${belongings[key]} ${name}${belongings[key] === 1 ? '' : 's'}`);
  const commands = had.map(({ list, end }) => `\`fuse ${list} --tenant ${id}\` and \`fuse ${end} ID --tenant ${id}\``);
  return new AppError('conflict', `tenant ${id} has ${inWords(counted)}`, {
    details: Object.fromEntries(KINDS.map(({ key }) => [key, String(belongings[key])])),
    hint: `List and end them: ${commands.join(', ')}. \`fuse tenants disable ${id}\` lets nothing new start meanwhile.`,
  });
}

const inWords = (parts: readonly string[]): string =>
  [parts.slice(0, -1).join(', '), parts.at(-1)].filter((part) => part !== '').join(' and ');
