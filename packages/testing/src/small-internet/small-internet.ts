/**
 * An internet of its own for tests of what guests may reach: a namespace with name server, web servers, a metadata service and private addresses, and one that is the
 * host's side, from where connections leave (FUSE_EGRESS_NETNS) and which has a service of its own. They are joined by one wire, and nothing else leads anywhere. Needs root.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { certificateAuthority } from '../certificates.ts';
import {
  type SeenConnection,
  type SeenQuery,
  type ServerOrder,
  ServerReport,
  world,
  type Zone,
  zone,
} from './world.ts';

/** What comes over the wire from the host: each destination once. Neighbours' own talk is none of it. */
const WATCH = `table netdev watch {
  set flows4 { type ipv4_addr . inet_proto . inet_service; size 65535; flags dynamic; }
  set flows6 { type ipv6_addr . inet_proto . inet_service; size 65535; flags dynamic; }
  set others4 { type ipv4_addr . inet_proto; size 65535; flags dynamic; }
  set others6 { type ipv6_addr . inet_proto; size 65535; flags dynamic; }
  chain in {
    type filter hook ingress device "down0" priority 0; policy accept;
    meta l4proto tcp tcp flags & (syn | ack) != syn accept
    meta protocol ip meta l4proto { tcp, udp } add @flows4 { ip daddr . meta l4proto . th dport } accept
    meta protocol ip6 meta l4proto { tcp, udp } add @flows6 { ip6 daddr . meta l4proto . th dport } accept
    icmpv6 type { 130-137, 143 } accept
    meta protocol ip add @others4 { ip daddr . meta l4proto }
    meta protocol ip6 add @others6 { ip6 daddr . meta l4proto }
  }
}`;
const WATCHED = ['flows4', 'flows6', 'others4', 'others6'] as const;
const SERVERS = fileURLToPath(new URL('../../dist/small-internet/servers.js', import.meta.url));
const DEADLINE_MS = 20_000;
const run = promisify(execFile);

export class SmallInternet implements AsyncDisposable {
  /** Where connections leave from. */
  readonly egressNamespace: string;
  /** `address:port` */
  readonly resolver = `${world.resolver}:53`;
  /** What signed the servers' certificate, which is good for every name of the zone. */
  readonly ca: string;
  readonly #inside: string;
  readonly #servers: ChildProcess[] = [];
  #zone: Zone = zone;

  private constructor(id: string, ca: string) {
    this.egressNamespace = `small-host-${id}`;
    this.#inside = `small-net-${id}`;
    this.ca = ca;
  }

  static async open(): Promise<SmallInternet> {
    await using authority = await certificateAuthority();
    const names = [...Object.keys(zone), '*.shop.org'].map((name) => `DNS:${name}`);
    const tls = await authority.serverOf(names);
    const internet = new SmallInternet(randomBytes(4).toString('hex'), authority.ca);
    try {
      await internet.#wire();
      await internet.#serve(internet.#inside, { part: 'internet', zone, tls });
      await internet.#serve(internet.egressNamespace, { part: 'host', zone, tls });
      return internet;
    } catch (error) {
      await internet[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Adds names, or gives them other records. */
  async setNames(names: Zone): Promise<void> {
    this.#zone = { ...this.#zone, ...names };
    await Promise.all(this.#servers.map((server) => ask(server, { zone: this.#zone })));
  }

  async queries(): Promise<SeenQuery[]> {
    return (await this.#reports()).flatMap(({ queries }) => queries);
  }

  /** Of all servers, the host's own included. */
  async connections(): Promise<SeenConnection[]> {
    return (await this.#reports()).flatMap(({ connections }) => connections);
  }

  /** `151.101.1.10 tcp 80`: where packets of the host went, those that no server answers too; of TCP those that begin a connection. */
  async flows(): Promise<string[]> {
    const text = (await this.#nft('list', 'table', 'netdev', 'watch')).stdout;
    const found = text.matchAll(/(?<=[{,\s])([0-9a-f.:]+) \. ([\w-]+)(?: \. (\d+))?(?=[,\s])/g);
    return [...found].map(([, ...parts]) => parts.filter((part) => part !== undefined).join(' ')).sort();
  }

  async forget(): Promise<void> {
    for (const set of WATCHED) await this.#nft('flush', 'set', 'netdev', 'watch', set);
    await Promise.all(this.#servers.map((server) => ask(server, 'forget')));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const server of this.#servers) {
      const ended = once(server, 'exit');
      server.disconnect();
      await ended;
    }
    for (const name of [this.egressNamespace, this.#inside]) await run('ip', ['netns', 'delete', name]).catch(() => {});
  }

  async #reports(): Promise<ServerReport[]> {
    return Promise.all(this.#servers.map(async (server) => ServerReport.parse(await ask(server, 'report'))));
  }

  async #wire(): Promise<void> {
    const [host, inside] = [this.egressNamespace, this.#inside];
    const ip = (...args: string[]) => run('ip', args);
    for (const name of [host, inside]) {
      await ip('netns', 'add', name);
      await ip('-n', name, 'link', 'set', 'lo', 'up');
    }
    await ip('-n', host, 'link', 'add', 'up0', 'type', 'veth', 'peer', 'name', 'down0', 'netns', inside);
    await ip('-n', inside, 'link', 'set', 'down0', 'up');
    await ip('-n', host, 'link', 'set', 'up0', 'up');
    const address = (name: string, value: string, device: string) =>
      ip('-n', name, 'address', 'add', value, 'dev', device, ...(value.includes(':') ? ['nodad'] : []));
    await address(host, `${world.host}/30`, 'up0');
    await address(host, `${world.host6}/126`, 'up0');
    await address(inside, `${world.router}/30`, 'down0');
    await address(inside, `${world.router6}/126`, 'down0');
    await ip('-n', host, 'route', 'add', 'default', 'via', world.router);
    await ip('-n', host, '-6', 'route', 'add', 'default', 'via', world.router6);
    await this.#nft(WATCH);
    const elsewhere = new Set<string>([world.host, world.host6, world.router, world.router6]);
    for (const each of Object.values(world))
      if (!elsewhere.has(each)) await address(inside, `${each}/${each.includes(':') ? 128 : 32}`, 'lo');
  }

  #nft(...args: string[]): Promise<{ stdout: string }> {
    return run('ip', ['netns', 'exec', this.#inside, 'nft', ...args]);
  }

  async #serve(namespace: string, order: ServerOrder): Promise<void> {
    const server = spawn('ip', ['netns', 'exec', namespace, process.execPath, SERVERS], {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    });
    this.#servers.push(server);
    const answer = await ask(server, { order });
    if (answer !== 'ready') throw new Error(`the small internet does not serve: ${JSON.stringify(answer)}`);
  }
}

/** One question at a time. */
async function ask(server: ChildProcess, command: object | string): Promise<unknown> {
  const answer = once(server, 'message', { signal: AbortSignal.timeout(DEADLINE_MS) });
  server.send(command);
  return (await answer)[0] as unknown; // what it is, the caller sees
}
