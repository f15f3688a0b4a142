/** The program as it is installed: needs `npm run build`. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { freePort, sharedPostgres, temporaryDirectory } from '@fuse/testing';
import { describe, expect, it } from 'vitest';

const program = fileURLToPath(new URL('../bin/fuse-orchestrator.js', import.meta.url));

const start = (variables: Record<string, string>) =>
  spawn(process.execPath, [program], {
    env: { PATH: process.env.PATH, ...variables },
    stdio: ['ignore', 'pipe', 'pipe'],
  });

describe('fuse-orchestrator', () => {
  it('says what is missing and ends with 1', async () => {
    const child = start({ ORCH_LISTEN: 'nowhere' });
    const [message, [code]] = await Promise.all([text(child.stderr), once(child, 'exit')]);
    expect(code).toBe(1);
    expect(message).toMatch(/^ORCH_LISTEN: must be host:port/);
  });

  it('serves until SIGTERM, then ends with 0, and finds its state again', async () => {
    await using directory = await temporaryDirectory();
    await using database = await (await sharedPostgres()).createDatabase();
    const port = await freePort();
    const variables = {
      FUSE_HOME: directory.path,
      DATABASE_URL: database.url,
      ORCH_LISTEN: `127.0.0.1:${port}`,
      ORCH_AUTH_TOKEN: 'the-token',
    };
    const host = {
      id: 'declared',
      url: 'http://127.0.0.1:1',
      capacity: { cpus: 1, ram_mb: 512, storage_gb: 2, vm_count: 1 },
    };
    const headers = { authorization: 'Bearer the-token' };
    const url = `http://127.0.0.1:${port}`;
    for (const round of [1, 2]) {
      const child = start(variables);
      const log = text(child.stdout);
      await expect
        .poll(
          () =>
            fetch(`${url}/health`).then(
              ({ status }) => status,
              () => 0,
            ),
          { timeout: 15_000 },
        )
        .toBe(200);
      const version = await (await fetch(`${url}/v1/version`)).json();
      expect(version).toEqual({ service: 'fuse-orchestrator', version: expect.stringMatching(/^\d+\.\d+\.\d+$/) });
      if (round === 1) {
        const registered = await fetch(`${url}/v1/hosts`, { method: 'POST', headers, body: JSON.stringify(host) });
        expect(registered.status).toBe(201);
      }
      expect(await (await fetch(`${url}/v1/hosts`, { headers })).json()).toMatchObject({ hosts: [{ id: 'declared' }] });
      child.kill('SIGTERM');
      expect(await once(child, 'exit')).toEqual([0, null]);
      expect(await log).not.toContain('the-token');
    }
  }, 60_000);
});
