/** A host agent that is not root: VMMs are not confined then, and QEMU opens nothing that this user may not write. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, chown, mkdir, readdir, stat, symlink } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import type { HostCapacityReport } from '@fuse/host-protocol';
import { newId } from '@fuse/runtime';
import { temporaryDirectory } from '@fuse/testing';
import { expect, it } from 'vitest';
import { TEST_SHAPE } from './test-host.ts';
import { PROGRAM_PATH } from './test-program.ts';

const NOBODY = 65_534;
const TOKEN = 'token-of-the-ordinary-user';
/** What is built may lie where root alone may read: this reads everywhere, and writes nowhere. */
const READS_EVERYTHING = '+dac_read_search';
const START_DEADLINE_MS = 240_000;

it.skipIf(process.geteuid?.() !== 0)(
  'starts VMs, and goes on from snapshots, as an ordinary user',
  async () => {
    await using directory = await temporaryDirectory('fuse-nobody-');
    const home = process.env.FUSE_HOME ?? join(homedir(), '.fuse');
    await mkdir(join(directory.path, 'host'));
    await symlink(join(home, 'assets'), join(directory.path, 'assets'));
    for (const path of [directory.path, join(directory.path, 'host')]) await chown(path, NOBODY, NOBODY);
    const limits = [`--inh-caps=-all,${READS_EVERYTHING}`, `--ambient-caps=-all,${READS_EVERYTHING}`];
    const user = [
      `--reuid=${NOBODY}`,
      `--regid=${NOBODY}`,
      '--clear-groups',
      `--bounding-set=-all,${READS_EVERYTHING}`,
    ];
    const agent = spawn('setpriv', [...user, ...limits, process.execPath, PROGRAM_PATH], {
      env: {
        ...{ PATH: process.env.PATH ?? '', FUSE_HOME: directory.path, FUSE_TEMPLATES: 'none', FUSE_VMM: 'qemu' },
        ...{ FUSE_HOST_LISTEN: '127.0.0.1:0', FUSE_HOST_TOKEN: TOKEN, FUSE_CONFINEMENT: 'auto' },
        FUSE_HOST_STORAGE_RESERVE_MB: '64',
      },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const created: string[] = [];
    let url = '';
    const call = async <T>(method: string, path: string, body?: unknown): Promise<T> => {
      const response = await fetch(`${url}${path}`, {
        method,
        headers: {
          authorization: `Bearer ${TOKEN}`,
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        },
        body: body === undefined ? null : JSON.stringify(body),
      });
      const text = await response.text();
      if (!response.ok) throw new Error(`${response.status}: ${text}`);
      return JSON.parse(text) as T; // the caller names the route's own type
    };
    const create = async (order: object = {}): Promise<string> => {
      const id = newId('vm');
      created.push(id);
      await call('PUT', `/v1/vms/${id}`, {
        image: 'base',
        ...order,
        shape: TEST_SHAPE,
        tag: 'nobody',
        hostname: 'nobody',
      });
      return id;
    };
    try {
      let log = '';
      for await (const chunk of agent.stdout.iterator({ destroyOnReturn: false })) {
        log += chunk;
        url = /"url":"([^"]+)"/.exec(log)?.[1] ?? '';
        if (url !== '') break;
      }
      agent.stdout.resume();
      expect(url, log).not.toBe('');
      expect((await call<HostCapacityReport>('GET', '/v1/capacity')).confined).toBe(false);
      const vm = await create();
      const templates = join(directory.path, 'host', 'templates');
      const [key = ''] = (await readdir(templates)).filter((name) => !name.startsWith('.'));
      const memory = join(templates, key, 'memory');
      expect(await stat(memory)).toMatchObject({ uid: NOBODY });
      await chmod(memory, 0o444); // as earlier versions left it
      await create();
      expect((await stat(memory)).mode & 0o777).toBe(0o644);
      const snapshot = newId('snap');
      await call('PUT', `/v1/vms/${vm}/snapshots/${snapshot}`, { tag: 'nobody', include_memory: true });
      await create({ seed: { snapshot_id: snapshot } });
    } finally {
      const ended = await Promise.allSettled(created.map((id) => call('DELETE', `/v1/vms/${id}`)));
      agent.kill('SIGTERM');
      if (agent.exitCode === null && agent.signalCode === null) await once(agent, 'exit');
      expect(ended.filter(({ status }) => status === 'rejected')).toEqual([]);
    }
  },
  START_DEADLINE_MS,
);
