/** For tests: a whole orchestrator on a port of its own, over a database of its own, with hosts that are local processes. */
import { openObjectStore } from '@fuse/object-store';
import { Disposables } from '@fuse/runtime';
import { temporaryDirectory } from '@fuse/testing';
import { createOrchestrator, type Orchestrator, type OrchestratorDeps } from './app.ts';
import type { OrchestratorConfig } from './config.ts';
import type { DatabaseLocation } from './db/open.ts';
import { type Engine, quiet, testLocation } from './db/test-database.ts';
import { defaultExecConfig } from './execs/exec-config.ts';
import { TestHost, type TestHostOptions } from './hosts/test-host.ts';
import { defaultNetworkConfig } from './network/network-config.ts';
import { defaultIntervals } from './reconciling/reconciler.ts';
import { defaultRunConfig } from './runs/run-config.ts';
import { testSealingKeys } from './secrets/test-sealer.ts';
import { defaultExportConfig } from './snapshots/exporting/export-config.ts';

export const TEST_TOKEN = 'master-token-of-the-tests';

export interface Answer {
  status: number;
  headers: Headers;
  /** Parsed when it is JSON, else text. */
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape
  body: any;
}

export interface TestOrchestrator extends AsyncDisposable {
  orchestrator: Orchestrator;
  host: TestHost;
  location: DatabaseLocation;
  config: OrchestratorConfig;
  call(method: string, path: string, body?: unknown, init?: RequestInit): Promise<Answer>;
  /** Another replica over the same database; PostgreSQL only. */
  another(changes?: Partial<OrchestratorConfig>, deps?: Partial<OrchestratorDeps>): Promise<Orchestrator>;
}

export const callerOf =
  (url: () => string) =>
  async (method: string, path: string, body?: unknown, init: RequestInit = {}): Promise<Answer> => {
    const response = await fetch(`${url()}${path}`, {
      method,
      ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
      ...init,
      headers: { authorization: `Bearer ${TEST_TOKEN}`, ...init.headers },
    });
    const text = await response.text();
    const isJson = response.headers.get('content-type')?.startsWith('application/json') ?? false;
    return { status: response.status, headers: response.headers, body: isJson ? JSON.parse(text) : text };
  };

export interface TestOrchestratorOptions {
  host?: TestHostOptions;
  config?: Partial<OrchestratorConfig>;
  deps?: Partial<OrchestratorDeps>;
}

export async function startTestOrchestrator(
  engine: Engine,
  options: TestOrchestratorOptions = {},
): Promise<TestOrchestrator> {
  const disposables = new Disposables(quiet);
  const directory = disposables.add('directory', await temporaryDirectory());
  const { location } = disposables.add('database', await testLocation(engine));
  const objectStoreConfig =
    options.config?.objectStore ?? ({ kind: 'file', directory: `${directory.path}/objects` } as const);
  const objectStore = disposables.add('object store', await openObjectStore(objectStoreConfig));
  const host = disposables.add('host', await TestHost.start({ objectStore, ...options.host }));
  const config: OrchestratorConfig = {
    listen: { host: '127.0.0.1', port: 0 },
    database: location,
    objectStore: objectStoreConfig,
    masterToken: TEST_TOKEN,
    allowedCidrs: [],
    secureCookies: undefined,
    sealing: testSealingKeys,
    vmPrefix: 'fuse-',
    placementPolicy: 'spread',
    publicUrl: undefined,
    publicAddress: undefined,
    shutdownTimeoutMs: 2_000,
    runs: defaultRunConfig,
    exports: defaultExportConfig,
    execs: defaultExecConfig,
    network: defaultNetworkConfig,
    audit: { retentionMs: 3_600_000 },
    takeoverMs: 30_000,
    reconciling: { ...defaultIntervals, intervalMs: 100, leaseMs: 2_000, missingGraceMs: 300, orphanGraceMs: 500 },
    version: 'test',
    logLevel: 'silent',
    ...options.config,
  };
  const another = async (changes: Partial<OrchestratorConfig> = {}, deps: Partial<OrchestratorDeps> = {}) =>
    disposables.add(
      'orchestrator',
      await createOrchestrator({ ...config, ...changes }, { log: quiet, objectStore, ...deps }),
    );
  const orchestrator = await another({}, options.deps);
  await orchestrator.registerHost({ id: 'host-1', url: host.url, token: host.token });
  return {
    orchestrator,
    host,
    location,
    config,
    another,
    call: callerOf(() => orchestrator.url),
    [Symbol.asyncDispose]: () => disposables[Symbol.asyncDispose](),
  };
}
