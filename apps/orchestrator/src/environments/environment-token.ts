/**
 * An environment's own credential: what runs in it reaches the API with that as a Bearer token, for that environment alone. The row has its sha256 and itself sealed; the
 * guest has it in TOKEN_FILE, put there whenever its VM was started, resumed or restored, since what is in a snapshot's disk may be another's. A rotation is committed first: from
 * then on the old one is refused everywhere and what was connected with it is cut. Environments of runs have none: what runs there is given what it needs.
 */
import { AppError } from '@fuse/contract';
import { announceCredentials } from '../api-keys/credential-store.ts';
import type { EnvironmentRow } from '../db/schema.ts';
import { persistently } from '../hosts/host-retries.ts';
import { isHostUnreachable } from '../hosts/host-transport.ts';
import { sealedAt } from '../secrets/sealed-places.ts';
import type { Sealer } from '../secrets/sealer.ts';
import type { EnvironmentContext } from './environment-context.ts';
import { environmentByUid } from './environment-store.ts';
import { newToken } from './new-token.ts';
import { notRunning } from './not-running.ts';
import type { GuestFile } from './own-files.ts';

export const TOKEN_FILE = '/fuse/auth-token';

/** As its guest has it; undefined: it has none. */
export function tokenFile(sealer: Sealer, { uid, token_sealed }: Pick<EnvironmentRow, 'uid' | 'token_sealed'>) {
  if (token_sealed === null) return undefined;
  const token = sealer.open(token_sealed, sealedAt('environments.token_sealed', uid));
  return { path: TOKEN_FILE, mode: '0600', content_base64: Buffer.from(token).toString('base64') };
}

/**
 * Into the guest of `row`, whose VM runs, in one go with what is to be `beside` it. A guest that will not have it there goes without: its disk is its own. Rejects when its host cannot be reached.
 */
export async function putToken(
  context: EnvironmentContext,
  row: EnvironmentRow,
  signal: AbortSignal | undefined,
  beside: readonly GuestFile[] = [],
): Promise<void> {
  try {
    await writeToken(context, row, signal, beside);
  } catch (error) {
    if (signal?.aborted || !(error instanceof AppError) || isHostUnreachable(error) || error.code === 'vm_lost')
      throw error;
    context.log.warn({ err: error, environment: row.id, vm_id: row.vm_id }, 'credential not written into the guest');
  }
}

async function writeToken(
  context: EnvironmentContext,
  row: EnvironmentRow,
  signal: AbortSignal | undefined,
  beside: readonly GuestFile[] = [],
): Promise<void> {
  const file = tokenFile(context.sealer, row);
  const files = [...beside, ...(file === undefined ? [] : [file])];
  if (files.length === 0) return;
  const client = await context.hosts.client(row.host_id);
  await persistently(context.hostRetryMs, () => client.putFiles(row.vm_id, { files }, signal), signal);
}

/** Resolves once the guest has the new one. 409 when it does not run; when its host cannot be reached the old one is refused all the same. */
export async function rotateToken(context: EnvironmentContext, uid: string): Promise<void> {
  let row: EnvironmentRow | undefined = await context.db.transaction(async (tx) => {
    const held = await tx.selectFrom('environments').selectAll().where('uid', '=', uid).forUpdate().executeTakeFirst();
    if (held === undefined) throw new AppError('not_found', 'vm not found');
    if (held.state !== 'running') throw notRunning(held);
    if (held.run_id !== null)
      throw new AppError('conflict', `vm ${held.id} belongs to run ${held.run_id}: it has no credential`, {
        details: { state: held.state, run_id: held.run_id },
      });
    await announceCredentials(tx);
    return tx
      .updateTable('environments')
      .set(newToken(context.sealer, uid))
      .where('uid', '=', uid)
      .returningAll()
      .executeTakeFirstOrThrow();
  });
  // Of several at once each sees to it that the last one's is there in the end.
  for (let written: string | null = null; row !== undefined && row.token_sealed !== written; ) {
    await writeToken(context, row, undefined).catch(notWritten);
    written = row.token_sealed;
    row = await environmentByUid(context.db.query, uid);
    if (row?.token_sealed === null) return; // it is gone
  }
}

function notWritten(cause: unknown): never {
  if (!(cause instanceof AppError) || cause.code === 'internal') throw cause;
  throw new AppError(
    cause.code,
    `the old credential is refused now, the new one could not be written into the guest: ${cause.message}`,
    {
      cause,
      ...(cause.details === undefined ? {} : { details: cause.details }),
      hint: 'Rotate it again, or pause and resume the environment: either writes it.',
    },
  );
}
