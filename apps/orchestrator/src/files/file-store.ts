/** Rows of uploads; the bytes are in the object store under `object_key`. */
import type { UploadedFile } from '@fuse/contract';
import { type Selectable, sql } from 'kysely';
import { inMs, type Queryable, type Tx } from '../db/db.ts';
import type { FilesTable } from '../db/schema.ts';

export type FileRow = Selectable<FilesTable>;

export interface NewFile {
  id: string;
  tenantId: string;
  objectKey: string;
  sizeBytes: number;
  sha256: string;
}

const alive = sql<boolean>`expires_at > now()`;

export function insertFile(query: Queryable, file: NewFile, lifetimeMs: number): Promise<FileRow> {
  return query
    .insertInto('files')
    .values({
      id: file.id,
      tenant_id: file.tenantId,
      object_key: file.objectKey,
      size_bytes: file.sizeBytes,
      sha256: file.sha256,
      expires_at: inMs(lifetimeMs),
    })
    .returningAll()
    .executeTakeFirstOrThrow();
}

export function findFile(query: Queryable, tenantId: string, id: string): Promise<FileRow | undefined> {
  return query
    .selectFrom('files')
    .selectAll()
    .where('id', '=', id)
    .where('tenant_id', '=', tenantId)
    .where(alive)
    .executeTakeFirst();
}

/**
 * The files of these ids that exist, kept for at least `keepMs` from now on: a run that was admitted finds its inputs, however
 * long it has to wait.
 */
export function holdFiles(tx: Tx, tenantId: string, ids: readonly string[], keepMs: number): Promise<FileRow[]> {
  return tx
    .updateTable('files')
    .set({ expires_at: sql<Date>`greatest(expires_at, ${inMs(keepMs)})` })
    .where('id', 'in', [...ids])
    .where('tenant_id', '=', tenantId)
    .where(alive)
    .returningAll()
    .execute();
}

export async function deleteFile(query: Queryable, tenantId: string, id: string): Promise<string | undefined> {
  const row = await query
    .deleteFrom('files')
    .where('id', '=', id)
    .where('tenant_id', '=', tenantId)
    .returning('object_key')
    .executeTakeFirst();
  return row?.object_key;
}

/** Row first, object after: no new run can be promised bytes that are about to go. */
export async function deleteExpiredFiles(query: Queryable, limit: number): Promise<string[]> {
  const rows = await sql<{ object_key: string }>`
    delete from files where id in (
      select id from files where expires_at <= now() order by expires_at limit ${limit} for update skip locked
    ) returning object_key`.execute(query);
  return rows.rows.map((row) => row.object_key);
}

export function toUploadedFile(row: FileRow): UploadedFile {
  return {
    id: row.id,
    size_bytes: row.size_bytes,
    sha256: row.sha256,
    created_at: row.created_at.toISOString(),
    expires_at: row.expires_at.toISOString(),
  };
}
