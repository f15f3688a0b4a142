import { ListImages, ListRuns, Run, RunEvent, RunOutput, UploadedFile } from '@fuse/contract';
import { z } from 'zod';
import { bytes, idempotent, type Operations, resumable, sse } from '../operation.ts';

export const runOperations: Operations = {
  'POST /v1/runs': {
    tag: 'runs',
    summary: 'Run a task',
    description: '200 when it ended within `wait_ms`, else 202.',
    headers: idempotent,
    answers: { 200: Run, 202: Run },
  },
  'GET /v1/runs': { tag: 'runs', summary: 'Runs, newest first', answers: { 200: ListRuns } },
  'GET /v1/runs/:id': { tag: 'runs', summary: 'One run', answers: { 200: Run } },
  'POST /v1/runs/:id': { tag: 'runs', summary: 'Cancel it', actions: { cancel: null }, answers: { 200: Run } },
  'GET /v1/runs/:id/events': {
    tag: 'events',
    summary: 'Its states and its output, to its end',
    headers: resumable,
    answers: { 200: sse(RunEvent) },
  },
  'GET /v1/runs/:id/outputs': {
    tag: 'runs',
    summary: 'Its output files',
    answers: { 200: z.object({ outputs: z.array(RunOutput) }) },
  },
  'GET /v1/runs/:id/outputs/*': { tag: 'runs', summary: 'One of them', answers: { 200: bytes, 206: bytes } },
  'GET /v1/downloads/:id/:position': {
    tag: 'runs',
    summary: 'An output by its signed address',
    answers: { 200: bytes, 206: bytes },
  },
  'POST /v1/files': {
    tag: 'uploads',
    summary: 'Upload a file for runs',
    body: bytes,
    bodyOptional: true,
    answers: { 201: UploadedFile },
  },
  'GET /v1/files/:id': { tag: 'uploads', summary: 'What was uploaded', answers: { 200: UploadedFile } },
  'DELETE /v1/files/:id': { tag: 'uploads', summary: 'Delete it', answers: { 204: null } },
  'GET /v1/images': { tag: 'images', summary: 'What some host can boot', answers: { 200: ListImages } },
};
