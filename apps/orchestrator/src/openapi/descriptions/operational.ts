import { z } from 'zod';
import type { Operations } from '../operation.ts';

const Readiness = z.object({ status: z.enum(['ready', 'not_ready']), checks: z.record(z.string(), z.string()) });

export const operationalOperations: Operations = {
  'GET /health': {
    tag: 'operations',
    summary: 'The process lives',
    answers: { 200: z.object({ status: z.string() }) },
  },
  'GET /ready': {
    tag: 'operations',
    summary: 'It can serve: each check is ok, or what is wrong',
    answers: { 200: Readiness, 503: Readiness },
  },
  'GET /metrics': { tag: 'operations', summary: 'Prometheus metrics', answers: { 200: { type: 'text/plain' } } },
  'GET /v1/version': {
    tag: 'operations',
    summary: 'What answers here',
    answers: { 200: z.object({ service: z.string(), version: z.string() }) },
  },
  'GET /openapi.json': {
    tag: 'operations',
    summary: 'This document',
    answers: { 200: z.looseObject({ openapi: z.string() }) },
  },
  'GET /docs': { tag: 'operations', summary: 'This document as a page', answers: { 200: { type: 'text/html' } } },
};
