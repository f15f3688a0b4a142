import {
  ComputerAction,
  ComputerResult,
  ComputerStatus,
  Environment,
  EnvironmentEvent,
  EnvironmentNetwork,
  Exec,
  ExecResult,
  Forks,
  ListEnvironments,
  PlacementReport,
} from '@fuse/contract';
import { z } from 'zod';
import { idempotent, type Operations, resumable, sse } from '../operation.ts';

export const environmentOperations: Operations = {
  'GET /v1/environments': {
    tag: 'environments',
    summary: 'Environments that are not gone, by id',
    answers: { 200: ListEnvironments },
  },
  'POST /v1/environments': {
    tag: 'environments',
    summary: 'Start an environment',
    description: '201 once it runs; with `wait: false` 202 at once.',
    headers: idempotent,
    answers: { 201: Environment, 202: Environment },
  },
  'GET /v1/environments/:id': { tag: 'environments', summary: 'One environment', answers: { 200: Environment } },
  'PATCH /v1/environments/:id': {
    tag: 'environments',
    summary: 'Renew its lifetime, change what happens to it by itself or what it may reach, label it',
    description: 'Another `network` is enforced when it is answered.',
    answers: { 200: Environment },
  },
  'DELETE /v1/environments/:id': {
    tag: 'environments',
    summary: 'Destroy it; legal in every state',
    answers: { 204: null },
  },
  'POST /v1/environments/:id': {
    tag: 'environments',
    summary: 'exec, fork, pause, resume, drain, rotate-token',
    description:
      '`exec` runs a command and answers with its result, whatever it exits with; with `background` at once (202). `fork` starts copies of it (201). `pause` and `resume` answer when it is so. ' +
      '`drain` lets what runs in it end. `rotate-token` gives the guest a new credential (204).',
    headers: idempotent,
    actions: { exec: null, fork: null, pause: null, resume: null, drain: null, 'rotate-token': null },
    answers: { 200: z.union([ExecResult, Environment]), 202: Exec, 201: z.union([Environment, Forks]), 204: null },
  },
  'GET /v1/environments/:id/events': {
    tag: 'events',
    summary: 'Its state at once, then what happens to it, to its end',
    headers: resumable,
    answers: { 200: sse(EnvironmentEvent) },
  },
  'GET /v1/environments/:id/placement': {
    tag: 'environments',
    summary: 'Why it is where it is, or waits',
    answers: { 200: PlacementReport },
  },
  'GET /v1/environments/:id/network': {
    tag: 'environments',
    summary: 'What it may reach, and what became of its connections',
    answers: { 200: EnvironmentNetwork },
  },
  'GET /v1/environments/:id/computer': {
    tag: 'environments',
    summary: 'Whether it has a display',
    answers: { 200: ComputerStatus },
  },
  'POST /v1/environments/:id/computer': {
    tag: 'environments',
    summary: 'Act on its display',
    body: ComputerAction,
    answers: { 200: ComputerResult },
  },
  'GET /v1/environments/:id/computer/stream': {
    tag: 'environments',
    summary: 'Its display',
    upgrade: ['fuse-vnc/1'],
    answers: {},
  },
};
