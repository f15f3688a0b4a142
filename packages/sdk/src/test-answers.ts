/** What the test server says. */
import { createHash } from 'node:crypto';
import type { Environment } from '@fuse/contract';

export interface Answer {
  status: number;
  /** Without it, the headers. */
  body?: unknown;
  headers?: Record<string, string>;
}

export const AT = '2026-01-01T00:00:00.000Z';

export const environment = (id: string, state: Environment['state'] = 'running'): Environment => ({
  id,
  state,
  task_id: 'task',
  url: '',
  spec: {},
  created_at: AT,
  updated_at: AT,
});

export const notFound = (id: string | undefined) => ({
  status: 404,
  body: { error: { code: 'not_found', message: `${id} not found` } },
});

export const uploaded = (body: string) => ({
  id: 'file-1',
  size_bytes: body.length,
  sha256: createHash('sha256').update(body, 'latin1').digest('hex'),
  created_at: AT,
  expires_at: AT,
});

export const execResult = {
  exec_id: 'exec-1',
  exit_code: 0,
  stdout: '',
  stderr: '',
  encoding: 'utf8',
  stdout_bytes: 0,
  stderr_bytes: 0,
  truncated: false,
  timed_out: false,
  oom_killed: false,
  duration_ms: 1,
};
