/**
 * A host agent registers itself (contract/src/host.ts, POST /v1/hosts/join) each time it starts: with its own token, which is enough once the orchestrator knows it, else with the join
 * token. Tried until it succeeds.
 */
import { JoinedHost, type JoinHost } from '@fuse/contract';
import { type Logger, sleep } from '@fuse/runtime';
import { postJson } from './post-json.ts';

export interface JoinConfig {
  /** Of the orchestrator. */
  url: string;
  /** PEM, for an orchestrator whose certificate no public authority vouches for. */
  ca: string | undefined;
  /** Undefined: it has joined before. */
  token: string | undefined;
  id: string;
  /** Where the orchestrator reaches us. */
  advertiseUrl: string;
  region: string | undefined;
  labels: Record<string, string> | undefined;
}

const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 30_000;

export class Joining implements AsyncDisposable {
  readonly #config: JoinConfig;
  readonly #token: string;
  readonly #log: Logger;
  readonly #stop = new AbortController();
  #done: Promise<void> = Promise.resolve();

  constructor(config: JoinConfig, { token, log }: { token: string; log: Logger }) {
    this.#config = config;
    this.#token = token;
    this.#log = log;
  }

  start(): void {
    this.#done = this.#join().catch(() => {}); // stopped
  }

  async #join(): Promise<void> {
    const { url, id } = this.#config;
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS)) {
      try {
        const { host, cluster_tag } = await this.#ask();
        this.#log.info({ orchestrator: url, host_id: id, state: host.state, cluster: cluster_tag }, 'joined the fleet');
        return;
      } catch (error) {
        this.#stop.signal.throwIfAborted();
        this.#log.error({ err: error, orchestrator: url, host_id: id, again_ms: pauseMs }, 'could not join the fleet');
        await sleep(pauseMs, this.#stop.signal);
      }
    }
  }

  async #ask(): Promise<JoinedHost> {
    const known = await this.#post(this.#token);
    if (known.status === 201) return JoinedHost.parse(known.body);
    const { token } = this.#config;
    if (known.status !== 401 || token === undefined) throw new Refused(known);
    const joined = await this.#post(token);
    if (joined.status !== 201) throw new Refused(joined);
    return JoinedHost.parse(joined.body);
  }

  #post(bearer: string): Promise<{ status: number; body: unknown }> {
    const { url, ca, id, advertiseUrl, region, labels } = this.#config;
    const body: JoinHost = { id, url: advertiseUrl, token: this.#token, region, labels };
    return postJson(`${url.replace(/\/$/, '')}/v1/hosts/join`, { bearer, ca, body, signal: this.#stop.signal });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort(new Error('the host agent stops'));
    await this.#done;
  }
}

class Refused extends Error {
  override readonly name = 'Refused';

  constructor({ status, body }: { status: number; body: unknown }) {
    super(`the orchestrator answered ${status}: ${JSON.stringify(body)?.slice(0, 500)}`);
  }
}
