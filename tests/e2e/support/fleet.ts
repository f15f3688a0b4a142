/**
 * A fleet of a test's own: two orchestrators on this machine over a real PostgreSQL, host agents in network namespaces of their own, each with a FUSE_HOME that shares only what is
 * immutable. Everybody speaks over TLS, orchestrators and hosts with certificates both ways. Nothing is left after `dispose`, which fails when something is.
 */
import { mkdir, readlink, symlink, writeFile } from 'node:fs/promises';
import https from 'node:https';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { createLogger, Disposables } from '@fuse/runtime';
import {
  type Authority,
  type Certificate,
  certificateAuthority,
  freePort,
  runningProcesses,
  sharedPostgres,
  temporaryDirectory,
} from '@fuse/testing';
import { type Machine, Network } from './network.ts';
import { Program } from './program.ts';

const bin = (app: string, name: string) => fileURLToPath(new URL(`../../../apps/${app}/bin/${name}`, import.meta.url));
const userHome = process.env.FUSE_HOME ?? join(homedir(), '.fuse');
const MASTER_TOKEN = 'master-token-of-the-fleet';
const DEADLINE_MS = 90_000;
const HOST_PORT = 8_090;
/** What could not be taken down is told. */
const complaining = createLogger({ name: 'fleet', level: 'error' });

export async function until<T>(what: string, look: () => Promise<T>, holds: (seen: T) => boolean): Promise<T> {
  const giveUpAt = Date.now() + DEADLINE_MS;
  for (;;) {
    const seen = await look();
    if (holds(seen)) return seen;
    if (Date.now() > giveUpAt) throw new Error(`${what} never came to be: ${JSON.stringify(seen)}`);
    await delay(200);
  }
}

export class FleetHost extends Program {
  readonly id: string;
  readonly home: string;
  readonly machine: Machine;

  constructor(id: string, { home, machine, env }: { home: string; machine: Machine; env: Record<string, string> }) {
    const argv = [...machine.prefix, process.execPath, bin('host-agent', 'fuse-host-agent.js')];
    super(argv, { ...env, FUSE_HOME: home, FUSE_HOST_ID: id }, join(home, 'log'));
    this.id = id;
    this.home = home;
    this.machine = machine;
  }

  /** Of its VMs, whoever started them. */
  async vmmPids(): Promise<number[]> {
    const pids: number[] = [];
    for (const { pid, command } of await runningProcesses()) {
      if (!command.includes('qemu-system')) continue;
      const cwd = await readlink(`/proc/${pid}/cwd`).catch(() => ''); // it ended meanwhile
      if (command.includes(this.home) || cwd.startsWith(this.home)) pids.push(pid);
    }
    return pids.sort((one, other) => one - other);
  }
}

/** What tests read of an answer, none of it checked before. */
export interface Answer {
  status: number | undefined;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape
  body: any;
}

export class FleetOrchestrator extends Program {
  readonly url: string;
  readonly #ca: string;

  constructor(
    name: string,
    { url, ca, directory, env }: { url: string; ca: string; directory: string; env: Record<string, string> },
  ) {
    super([process.execPath, bin('orchestrator', 'fuse-orchestrator.js')], env, join(directory, `${name}.log`));
    this.url = url;
    this.#ca = ca;
  }

  call(method: string, path: string, body?: unknown): Promise<Answer> {
    const headers = { authorization: `Bearer ${MASTER_TOKEN}` };
    return new Promise((resolve, reject) => {
      const options = { method, ca: this.#ca, agent: false, headers } as const;
      const request = https.request(`${this.url}${path}`, options, (response) => {
        text(response).then(
          (answer) => resolve({ status: response.statusCode, body: answer === '' ? undefined : JSON.parse(answer) }),
          reject,
        );
      });
      request.on('error', reject).end(body === undefined ? undefined : JSON.stringify(body));
    });
  }

  ready(): Promise<Answer> {
    const isUp = () => this.call('GET', '/ready').catch((error: Error) => ({ status: 0, body: error.message }));
    return until('an orchestrator that is ready', isUp, ({ status }) => status === 200);
  }
}

export class Fleet implements AsyncDisposable {
  readonly hosts: FleetHost[];
  readonly orchestrators: FleetOrchestrator[];
  readonly #disposables: Disposables;

  private constructor(parts: { hosts: FleetHost[]; orchestrators: FleetOrchestrator[]; disposables: Disposables }) {
    this.hosts = parts.hosts;
    this.orchestrators = parts.orchestrators;
    this.#disposables = parts.disposables;
  }

  /** Orchestrators are ready, hosts were started and join by themselves. */
  static async open(hostCount: number): Promise<Fleet> {
    const disposables = new Disposables(complaining);
    try {
      const { path: directory } = disposables.add('directory', await temporaryDirectory('fuse-fleet-'));
      const authority = disposables.add('authority', await certificateAuthority());
      const network = disposables.add('network', await Network.open());
      const database = disposables.add('database', await (await sharedPostgres()).createDatabase());
      await writeFile(join(directory, 'ca.crt'), authority.ca);
      const orchestrators = await startOrchestrators(directory, { authority, network, databaseUrl: database.url });
      for (const one of orchestrators) disposables.add('orchestrator', one);
      for (const one of orchestrators) await one.ready();
      const [first] = orchestrators;
      const { body } = await first.call('POST', '/v1/host-join-tokens', { uses: hostCount });
      const hosts: FleetHost[] = [];
      for (let number = 1; number <= hostCount; number += 1) {
        const host = await makeHost(`host-${number}`, directory, {
          authority,
          network,
          joinUrl: first.url,
          joinToken: body.token,
        });
        hosts.push(disposables.add('host agent', host));
        host.start();
      }
      return new Fleet({ hosts, orchestrators, disposables });
    } catch (error) {
      await disposables[Symbol.asyncDispose]();
      throw error;
    }
  }

  async log(): Promise<string> {
    return (await Promise.all([...this.orchestrators, ...this.hosts].map((one) => one.log()))).join('\n\n');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const left = (await Promise.all(this.hosts.map((host) => host.vmmPids()))).flat();
    for (const host of this.hosts) await host.end('SIGTERM');
    for (const pid of left) process.kill(pid, 'SIGKILL');
    await this.#disposables[Symbol.asyncDispose]();
    if (left.length > 0) throw new Error(`VMs were left running: ${left.join(', ')}`);
  }
}

interface Surroundings {
  authority: Authority;
  network: Network;
}

async function writeCertificate(directory: string, name: string, { cert, key }: Certificate) {
  const paths = { cert: join(directory, `${name}.crt`), key: join(directory, `${name}.key`) };
  await writeFile(paths.cert, cert);
  await writeFile(paths.key, key, { mode: 0o600 });
  return paths;
}

async function startOrchestrators(
  directory: string,
  { authority, network, databaseUrl }: Surroundings & { databaseUrl: string },
): Promise<[FleetOrchestrator, FleetOrchestrator]> {
  const server = await writeCertificate(directory, 'orchestrator', await authority.server(network.address));
  const client = await writeCertificate(directory, 'client', await authority.client());
  const start = async (name: string) => {
    const listen = `${network.address}:${await freePort()}`;
    const env = {
      DATABASE_URL: databaseUrl,
      ORCH_LISTEN: listen,
      ORCH_AUTH_TOKEN: MASTER_TOKEN,
      TOKEN_ENCRYPTION_KEY: 'ab'.repeat(32),
      ORCH_REQUIRE_AUTH: 'true',
      ORCH_TAKEOVER_SECONDS: '6',
      ORCH_TLS_CERT: server.cert,
      ORCH_TLS_KEY: server.key,
      ORCH_HOST_CA: join(directory, 'ca.crt'),
      ORCH_HOST_CLIENT_CERT: client.cert,
      ORCH_HOST_CLIENT_KEY: client.key,
      FUSE_OBJECTS_DIR: join(directory, 'objects'),
    };
    const one = new FleetOrchestrator(name, { url: `https://${listen}`, ca: authority.ca, directory, env });
    one.start();
    return one;
  };
  return [await start('one'), await start('other')];
}

async function makeHost(
  id: string,
  directory: string,
  { authority, network, joinUrl, joinToken }: Surroundings & { joinUrl: string; joinToken: string },
): Promise<FleetHost> {
  const home = join(directory, id);
  await mkdir(join(home, 'host'), { recursive: true });
  await symlink(join(userHome, 'assets'), join(home, 'assets'));
  await symlink(join(userHome, 'host', 'templates'), join(home, 'host', 'templates'));
  const machine = await network.machine();
  const server = await writeCertificate(directory, id, await authority.server(machine.address));
  const env = {
    FUSE_HOST_LISTEN: `${machine.address}:${HOST_PORT}`,
    FUSE_ADVERTISE_URL: `https://${machine.address}:${HOST_PORT}`,
    FUSE_HOST_TLS_CERT: server.cert,
    FUSE_HOST_TLS_KEY: server.key,
    FUSE_HOST_TLS_CLIENT_CA: join(directory, 'ca.crt'),
    FUSE_JOIN_URL: joinUrl,
    FUSE_JOIN_CA: join(directory, 'ca.crt'),
    FUSE_JOIN_TOKEN: joinToken,
    FUSE_OBJECTS_DIR: join(directory, 'objects'),
    FUSE_TEMPLATES: 'none',
  };
  return new FleetHost(id, { home, machine, env });
}
