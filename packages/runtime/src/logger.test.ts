import { expect, it } from 'vitest';
import { createLogger } from './logger.ts';

it('secrets that are logged by mistake are not', () => {
  const lines: string[] = [];
  const log = createLogger({ name: 'test', destination: { write: (line) => void lines.push(line) } });
  const fields = {
    ...{ authorization: 'hunter2', cookie: 'hunter2', env: { A: 'hunter2' }, files: ['hunter2'], key: 'hunter2' },
    ...{ manifest: { a: 'hunter2' }, secrets: { a: 'hunter2' }, startup: { script: 'hunter2' }, stdin: 'hunter2' },
    ...{ ticket: 'hunter2', token: 'hunter2', password: 'hunter2', startup_script: 'hunter2' },
  };
  log.info(fields, 'plain');
  log.info({ body: fields }, 'nested');
  const headers = { authorization: 'hunter2', cookie: 'hunter2', 'set-cookie': 'hunter2' };
  log.info({ headers, req: { headers }, res: { headers } }, 'headers');
  expect(lines).toHaveLength(3);
  for (const line of lines) expect(line).not.toContain('hunter2');
});
