/**
 * What the guest finds in `/fuse` besides its credential (api.md 2.2). A VM that starts from a snapshot keeps what is on its disk, unless it is given here. Nobody's files
 * can be there instead: a create's `files` are refused in `/fuse`.
 */
import type { GuestFiles } from '@fuse/host-protocol';
import type { EnvironmentRow } from '../db/schema.ts';
import { type Confided, DEFAULT_MANIFEST, shellVariables } from './manifest.ts';

export type GuestFile = GuestFiles['files'][number];

const MANIFEST = '/fuse/manifest.json';
const SECRETS = '/fuse/secrets.json';
const VARIABLES = '/fuse/env';

/** Its owner reads it, and nobody else in the guest. */
const confidential = (path: string, text: string): GuestFile => ({ ...plain(path, text), mode: '0600' });

const plain = (path: string, text: string): GuestFile => ({
  path,
  mode: '0644',
  content_base64: Buffer.from(text, 'utf8').toString('base64'),
});

/** Without which it starts all the same. */
export function ownFiles(
  row: Pick<EnvironmentRow, 'run_id' | 'seed_snapshot_id' | 'healthcheck' | 'desktop'>,
): GuestFile[] {
  const isNew = row.run_id === null && row.seed_snapshot_id === null;
  return [
    ...(isNew ? [plain(MANIFEST, DEFAULT_MANIFEST), confidential(SECRETS, '{}'), confidential(VARIABLES, '')] : []),
    ...(row.healthcheck === null ? [] : [plain('/fuse/healthcheck.json', JSON.stringify(row.healthcheck))]),
    ...(row.desktop === null ? [] : [plain('/fuse/desktop.json', JSON.stringify(row.desktop))]),
  ];
}

/** What its create gave, in place of those. */
export function confidedFiles(confided: Confided): GuestFile[] {
  const { manifest, secrets } = confided;
  return [
    ...(manifest === undefined ? [] : [plain(MANIFEST, manifest), confidential(VARIABLES, shellVariables(confided))]),
    ...(secrets === undefined ? [] : [confidential(SECRETS, JSON.stringify(secrets))]),
  ];
}
