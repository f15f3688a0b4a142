import { HostSnapshot, SnapshotId, TakeSnapshot, VmId } from '@fuse/host-protocol';
import { z } from 'zod';
import { callerSignal } from './caller-signal.ts';
import type { App, HttpParts } from './server.ts';

const MAX_WAIT_MS = 60_000;

const SnapshotParams = z.object({ sid: SnapshotId });
const TakeParams = z.object({ id: VmId, sid: SnapshotId });
const TakeQuery = z.object({ wait: z.literal('durable').optional() });
const WaitQuery = z.object({ wait_ms: z.coerce.number().int().nonnegative().default(0) });
const Deleted = z.object({ deleted: z.boolean(), freed_bytes: z.number().int() });

export function snapshotRoutes(app: App, { vms, snapshots, stopping }: HttpParts): void {
  app.get(
    '/v1/snapshots',
    { schema: { response: { 200: z.object({ snapshots: z.array(HostSnapshot) }) } } },
    async () => ({ snapshots: snapshots.list() }),
  );

  app.put(
    '/v1/vms/:id/snapshots/:sid',
    {
      schema: {
        params: TakeParams,
        querystring: TakeQuery,
        body: TakeSnapshot,
        response: { 200: HostSnapshot, 201: HostSnapshot },
      },
    },
    async (request, reply) => {
      const { id, sid } = request.params;
      const { snapshot, created } = await vms.takeSnapshot(id, sid, request.body);
      if (request.query.wait === 'durable') await snapshot.waitForEnd(MAX_WAIT_MS, callerSignal(reply, stopping));
      return reply.code(created ? 201 : 200).send(snapshot.view());
    },
  );

  app.get(
    '/v1/snapshots/:sid',
    { schema: { params: SnapshotParams, querystring: WaitQuery, response: { 200: HostSnapshot } } },
    async (request, reply) => {
      const snapshot = snapshots.get(request.params.sid);
      const waitMs = Math.min(request.query.wait_ms, MAX_WAIT_MS);
      if (waitMs > 0) await snapshot.waitForEnd(waitMs, callerSignal(reply, stopping));
      return snapshot.view();
    },
  );

  app.delete(
    '/v1/snapshots/:sid',
    { schema: { params: SnapshotParams, response: { 200: Deleted } } },
    async (request) => snapshots.delete(request.params.sid),
  );
}
