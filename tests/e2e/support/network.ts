/**
 * Machines of a test's own on this one: a bridge, and a network namespace for each, with an address on it. What runs in a namespace reaches the others and this machine over its
 * link alone, which can be cut. Needs root; `whyNoNetwork` says why it cannot be had.
 */
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { promisify } from 'node:util';

const run = promisify(execFile);
const ip = async (...args: string[]): Promise<void> => {
  await run('ip', args);
};

export async function whyNoNetwork(): Promise<string | undefined> {
  if (process.getuid?.() !== 0) return 'network namespaces need root';
  const probe = `fuse-${randomBytes(3).toString('hex')}`;
  try {
    await ip('netns', 'add', probe);
    await ip('netns', 'del', probe);
    return undefined;
  } catch (error) {
    return `no network namespace can be made: ${error instanceof Error ? error.message.trim() : String(error)}`;
  }
}

export interface Machine {
  address: string;
  /** What a command in its namespace begins with. */
  prefix: string[];
  cut(): Promise<void>;
  mend(): Promise<void>;
}

export class Network implements AsyncDisposable {
  readonly #id = randomBytes(3).toString('hex');
  readonly #subnet = `10.${100 + ((randomBytes(1)[0] ?? 0) % 100)}.${randomBytes(1)[0] ?? 0}`;
  readonly #namespaces: string[] = [];

  static async open(): Promise<Network> {
    const network = new Network();
    await ip('link', 'add', network.#bridge, 'type', 'bridge');
    await ip('addr', 'add', `${network.address}/24`, 'dev', network.#bridge);
    await ip('link', 'set', network.#bridge, 'up');
    return network;
  }

  get #bridge(): string {
    return `fb-${this.#id}`;
  }

  /** Of this machine. */
  get address(): string {
    return `${this.#subnet}.1`;
  }

  async machine(): Promise<Machine> {
    const number = this.#namespaces.length + 1;
    const namespace = `fuse-${this.#id}-${number}`;
    const [outside, inside] = [`fo-${this.#id}-${number}`, `fi-${this.#id}-${number}`];
    const address = `${this.#subnet}.${10 + number}`;
    await ip('netns', 'add', namespace);
    this.#namespaces.push(namespace);
    await ip('link', 'add', outside, 'type', 'veth', 'peer', 'name', inside, 'netns', namespace);
    await ip('link', 'set', outside, 'master', this.#bridge, 'up');
    await ip('-n', namespace, 'addr', 'add', `${address}/24`, 'dev', inside);
    await ip('-n', namespace, 'link', 'set', inside, 'up');
    await ip('-n', namespace, 'link', 'set', 'lo', 'up');
    return {
      address,
      prefix: ['ip', 'netns', 'exec', namespace],
      cut: () => ip('link', 'set', outside, 'down'),
      mend: () => ip('link', 'set', outside, 'up'),
    };
  }

  /** Links go with their namespaces. */
  async [Symbol.asyncDispose](): Promise<void> {
    for (const namespace of this.#namespaces) await ip('netns', 'del', namespace);
    await ip('link', 'del', this.#bridge);
  }
}
