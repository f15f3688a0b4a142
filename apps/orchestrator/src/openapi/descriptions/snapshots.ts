import { ListSnapshots, ResolvedSnapshot, Snapshot } from '@fuse/contract';
import { idempotent, type Operations } from '../operation.ts';

export const snapshotOperations: Operations = {
  'POST /v1/environments/:id/snapshots': {
    tag: 'snapshots',
    summary: 'Take a snapshot',
    bodyOptional: true,
    headers: idempotent,
    answers: { 201: Snapshot },
  },
  'GET /v1/snapshots': { tag: 'snapshots', summary: 'Snapshots, newest first', answers: { 200: ListSnapshots } },
  'GET /v1/snapshots/resolve': {
    tag: 'snapshots',
    summary: 'The snapshot of a layer, if there is one',
    answers: { 200: ResolvedSnapshot },
  },
  'GET /v1/snapshots/:id': { tag: 'snapshots', summary: 'One snapshot', answers: { 200: Snapshot } },
  'DELETE /v1/snapshots/:id': { tag: 'snapshots', summary: 'Delete it', answers: { 204: null } },
  'POST /v1/snapshots/:id': {
    tag: 'snapshots',
    summary: 'Restore its environment to it, in place',
    actions: { restore: null },
    answers: { 204: null },
  },
};
