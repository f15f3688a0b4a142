import { ExportedSnapshot, ExportSnapshot, SnapshotChunks, SnapshotId } from '@fuse/host-protocol';
import { z } from 'zod';
import type { SnapshotTransfer } from '../snapshots/chunks/snapshot-transfer.ts';
import { callerSignal } from './caller-signal.ts';
import type { App } from './server.ts';

const SnapshotParams = z.object({ sid: SnapshotId });
/** Hundreds of thousands of chunks. */
const EXPORT_BODY_LIMIT_BYTES = 64 * 1024 * 1024;

export function chunkRoutes(
  app: App,
  { transfer, stopping }: { transfer: SnapshotTransfer; stopping: AbortSignal },
): void {
  app.post(
    '/v1/snapshots/:sid/chunks',
    { schema: { params: SnapshotParams, response: { 200: SnapshotChunks } } },
    async (request, reply) => transfer.chunks(request.params.sid, callerSignal(reply, stopping)),
  );

  app.put(
    '/v1/snapshots/:sid/export',
    {
      schema: { params: SnapshotParams, body: ExportSnapshot, response: { 200: ExportedSnapshot } },
      bodyLimit: EXPORT_BODY_LIMIT_BYTES,
    },
    async (request, reply) => transfer.export(request.params.sid, request.body, callerSignal(reply, stopping)),
  );
}
