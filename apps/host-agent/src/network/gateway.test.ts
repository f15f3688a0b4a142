/** The process of the gateway that set-up built, without slots. */
import { existsSync, readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { createLogger } from '@fuse/runtime';
import { temporaryDirectory } from '@fuse/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { hostHierarchies } from '../confinement/hierarchies.ts';
import { Gateway } from './gateway.ts';

const MIB = 1_048_576;
const Programs = z.object({ programs: z.record(z.string(), z.object({ path: z.string() })) });

const memoryHierarchy = hostHierarchies().find(({ controllers }) => controllers.includes('memory'));
const isRoot = process.geteuid?.() === 0;

async function programPath(name: string): Promise<string> {
  const manifest = join(process.env.FUSE_HOME || join(homedir(), '.fuse'), 'assets', 'manifest.json');
  const { programs } = Programs.parse(JSON.parse(await readFile(manifest, 'utf8')));
  const path = programs[name]?.path;
  if (path === undefined) throw new Error(`${manifest} names no ${name}`);
  return path;
}

describe.skipIf(!isRoot)('the gateway of a host', () => {
  let parent: Awaited<ReturnType<typeof temporaryDirectory>>;
  let open: (confinement?: 'auto' | 'off') => Gateway;
  let first: Gateway;

  beforeEach(async () => {
    parent = await temporaryDirectory();
    const [gatewayPath, jailerPath] = await Promise.all([programPath('gateway'), programPath('jailer')]);
    const log = createLogger({ name: 'test', level: 'silent' });
    const directory = join(parent.path, 'gateway');
    const groupName = `fuse-gateway-test-${basename(parent.path)}`;
    open = (confinement = 'auto') =>
      new Gateway({
        ...{ directory, gatewayPath, jailerPath, log },
        ...{ egressNamespace: undefined, uid: 869_999, onLost: () => {} },
        memory: { softMiB: 96, groupName, confinement, log },
        config: () =>
          Promise.resolve({
            resolvers: ['192.0.2.53:53'],
            private_allow: [],
            host_addresses: [],
            max_connections_per_vm: 10,
          }),
      });
    first = open();
  });
  afterEach(async () => {
    await open().end();
    await parent[Symbol.asyncDispose]();
  });

  const pid = () => {
    const identity = readFileSync(join(parent.path, 'gateway', 'vmm.json'), 'utf8');
    return z.object({ pid: z.number() }).parse(JSON.parse(identity)).pid;
  };
  const groupDirectories = () =>
    readFileSync(`/proc/${pid()}/cgroup`, 'utf8')
      .split('\n')
      .map((line) => line.split(':')[2] ?? '')
      .filter((path) => path.includes('fuse-gateway-test-'))
      .map((path) => join(memoryHierarchy?.mountPath ?? '', path));

  it('that an earlier host agent left is not ended when somebody has asked for it', async () => {
    await first.ensure();
    await first.letGo();
    const left = pid();
    const second = open();
    const wanted = second.ensure();
    await second.takeUp();
    await wanted;
    expect(second.isUp).toBe(true);
    expect(pid()).toBe(left);
    await second.list();
    await second.letGo();
  });

  it('that an earlier host agent left is ended before another one, that somebody asks for meanwhile, is there', async () => {
    await first.ensure();
    await first.letGo();
    const left = pid();
    const second = open();
    const ending = second.takeUp();
    await second.ensure();
    await ending;
    expect(second.isUp).toBe(true);
    expect(pid()).not.toBe(left);
    expect(existsSync(`/proc/${left}`)).toBe(false);
    await second.list();
    await second.letGo();
  });

  it.skipIf(memoryHierarchy === undefined)(
    'is in a control group with a limit on its memory, which goes with it',
    async () => {
      await first.ensure();
      const [group = ''] = groupDirectories();
      const file = memoryHierarchy?.version === 2 ? 'memory.max' : 'memory.limit_in_bytes';
      expect(Number(readFileSync(join(group, file), 'utf8'))).toBe(2 * 96 * MIB);
      expect(dirname(group)).toBe(memoryHierarchy?.mountPath);
      await first.end();
      expect(existsSync(group)).toBe(false);
    },
  );

  it('has its soft limit alone where nothing is confined', async () => {
    const unconfined = open('off');
    await unconfined.ensure();
    expect(groupDirectories()).toEqual([]);
    expect(readFileSync(`/proc/${pid()}/cmdline`, 'utf8')).toContain('--memory-mib\x0096\0');
    await unconfined.end();
  });
});
