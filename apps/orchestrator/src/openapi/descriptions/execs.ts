import {
  Exec,
  ExecLogLine,
  ExecOpened,
  ExecResult,
  ExecStdin,
  ListExecs,
  ListProcesses,
  SignalRequest,
} from '@fuse/contract';
import { z } from 'zod';
import { bytes, type Operations } from '../operation.ts';

const EXECS = '/v1/environments/:id/execs';
const log = z.union([ExecLogLine, ExecOpened]);

export const execOperations: Operations = {
  [`POST ${EXECS}`]: {
    tag: 'exec',
    summary: 'Start a command',
    description: 'With `stream` the answer is its log, as it grows; 200 for an id that was started before.',
    answers: { 200: Exec, 201: Exec },
  },
  [`GET ${EXECS}`]: { tag: 'exec', summary: 'Its commands, newest first', answers: { 200: ListExecs } },
  [`GET ${EXECS}/:exec_id`]: {
    tag: 'exec',
    summary: 'One command; if so asked once it has ended',
    answers: { 200: Exec },
  },
  [`GET ${EXECS}/:exec_id/result`]: {
    tag: 'exec',
    summary: 'How it ended, with its output',
    answers: { 200: ExecResult },
  },
  [`GET ${EXECS}/:exec_id/log`]: {
    tag: 'exec',
    summary: 'Its output from an offset, as lines, text or frames',
    answers: { 200: { type: 'application/x-ndjson', schema: log } },
  },
  [`POST ${EXECS}/:exec_id/signal`]: {
    tag: 'exec',
    summary: 'Signal it',
    body: SignalRequest,
    bodyOptional: true,
    answers: { 204: null },
  },
  [`POST ${EXECS}/:exec_id/stdin`]: {
    tag: 'exec',
    summary: 'Write to its stdin, at an offset',
    body: bytes,
    bodyOptional: true,
    answers: { 200: ExecStdin },
  },
  [`DELETE ${EXECS}/:exec_id`]: { tag: 'exec', summary: 'Kill it with all that it started', answers: { 204: null } },
  'GET /v1/environments/:id/processes': {
    tag: 'exec',
    summary: 'Processes in the environment',
    answers: { 200: ListProcesses },
  },
  'POST /v1/environments/:id/processes/:pid/signal': {
    tag: 'exec',
    summary: 'Signal a process',
    body: SignalRequest,
    bodyOptional: true,
    answers: { 204: null },
  },
};
