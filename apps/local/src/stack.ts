/** Orchestrator and host agent in one process: the same code as apart, with the same HTTP between them, over memory in place of the network. */
import { createHostAgent, loadHostAgentConfig } from '@fuse/host-agent';
import { openObjectStore } from '@fuse/object-store';
import { createOrchestrator, loadOrchestratorConfig } from '@fuse/orchestrator';
import { Disposables, type Logger } from '@fuse/runtime';
import type { Home, ProcessEnv } from './home.ts';
import { LISTEN_HOST } from './port.ts';
import { ensureSealingKey, newToken } from './token.ts';

/** Disposing leaves the VMs running. */
export interface Stack extends AsyncDisposable {
  readonly url: string;
  readonly hostUrl: string;
  readonly hostToken: string;
  destroyAllVms(): Promise<void>;
  /** The public API goes; VMs and what watches them stay. */
  stopAccepting(): Promise<void>;
}

export interface StackOptions {
  home: Home;
  env: ProcessEnv;
  port: number;
  token: string;
  log: Logger;
}

const HOST_ID = 'local';
/** What a shell's profile says of other deployments: their database is not ours to fill, their keys do not open what is here. */
const NOT_OURS: ReadonlySet<string> = new Set([
  'DATABASE_URL',
  'FUSE_HOST_TLS_CERT',
  'FUSE_HOST_TLS_CLIENT_CA',
  'FUSE_HOST_TLS_KEY',
  'FUSE_HOST_TOKEN_FILE',
  'FUSE_JOIN_URL',
  'ORCH_AUTH_TOKEN_FILE',
  'ORCH_HOST_CA',
  'ORCH_HOST_CLIENT_CERT',
  'ORCH_HOST_CLIENT_KEY',
  'ORCH_REQUIRE_AUTH',
  'ORCH_TLS_CERT',
  'ORCH_TLS_KEY',
  'TOKEN_ENCRYPTION_KEY',
  'TOKEN_ENCRYPTION_KEY_FILE',
  'TOKEN_ENCRYPTION_KEY_OLD',
  'TOKEN_ENCRYPTION_KEY_OLD_FILE',
]);

export async function startStack({ home, env, port, token, log }: StackOptions): Promise<Stack> {
  const disposables = new Disposables(log);
  const rest = Object.fromEntries(Object.entries(env).filter(([name]) => !NOT_OURS.has(name)));
  const hostToken = newToken();
  try {
    const variables = { ...rest, FUSE_HOME: home.directory };
    const hostConfig = loadHostAgentConfig({
      ...variables,
      FUSE_HOST_LISTEN: `${LISTEN_HOST}:0`,
      FUSE_HOST_TOKEN: hostToken,
    });
    await ensureSealingKey(home.sealingKey);
    const config = loadOrchestratorConfig({
      ...variables,
      ORCH_LISTEN: `${LISTEN_HOST}:${port}`,
      ORCH_AUTH_TOKEN: token,
      TOKEN_ENCRYPTION_KEY_FILE: home.sealingKey,
      ORCH_EMBEDDED_DATABASE: home.postgres,
    });
    const store = disposables.add('object store', await openObjectStore(config.objectStore));
    const agent = disposables.add(
      'host agent',
      await createHostAgent(hostConfig, { log: log.child({ part: 'host-agent' }), store }),
    );
    const orchestrator = await createOrchestrator(config, {
      log: log.child({ part: 'orchestrator' }),
      objectStore: store,
      localHost: {
        registration: { id: HOST_ID, url: agent.url, token: hostToken },
        connect: (options) => agent.connect(options),
      },
    });
    let stopped: Promise<void> | undefined;
    const stopAccepting = () => {
      stopped ??= Promise.resolve(orchestrator[Symbol.asyncDispose]());
      return stopped;
    };
    disposables.defer('orchestrator', stopAccepting);
    return {
      url: orchestrator.url,
      hostUrl: agent.url,
      hostToken,
      destroyAllVms: () => agent.destroyAllVms(),
      stopAccepting,
      [Symbol.asyncDispose]: () => disposables[Symbol.asyncDispose](),
    };
  } catch (error) {
    await disposables[Symbol.asyncDispose]();
    throw error;
  }
}
