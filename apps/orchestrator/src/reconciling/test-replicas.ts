/** For tests: what orchestrator processes have without their HTTP, over one database with one test host. */
import { type ObjectStore, openObjectStore } from '@fuse/object-store';
import { createLogger, type Logger, newId, systemClock } from '@fuse/runtime';
import { temporaryDirectory } from '@fuse/testing';
import type { Db } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';
import { type Engine, openTestDb, type TestDb } from '../db/test-database.ts';
import { type Admission, rejectionError } from '../environments/admission.ts';
import { EnvironmentService } from '../environments/environment-service.ts';
import { environmentByUid } from '../environments/environment-store.ts';
import { EventHub } from '../events/events.ts';
import { HostDirectory } from '../hosts/host-directory.ts';
import { HostService } from '../hosts/host-service.ts';
import { TestHost, type TestHostOptions } from '../hosts/test-host.ts';
import { defaultNetworkConfig, type NetworkConfig } from '../network/network-config.ts';
import { testSealer } from '../secrets/test-sealer.ts';
import { SnapshotService } from '../snapshots/snapshot-service.ts';
import { defaultIntervals, Reconciler } from './reconciler.ts';

export const TAG = 'cluster-of-this-test';
const log: Logger = createLogger({ name: 'test', level: process.env.FUSE_TEST_LOG ?? 'silent' });

/** What one orchestrator process has, without its HTTP. */
export class Replica implements AsyncDisposable {
  readonly owner = newId('orch');
  readonly hosts: HostDirectory;
  readonly environments: EnvironmentService;
  readonly snapshots: SnapshotService;
  readonly reconciler: Reconciler;

  constructor(
    { db, hub, objectStore }: { db: Db; hub: EventHub; objectStore: ObjectStore },
    intervals: Partial<typeof defaultIntervals> = {},
    network: NetworkConfig = defaultNetworkConfig,
    localHostId?: string,
  ) {
    this.hosts = new HostDirectory(db, hub, log, testSealer);
    const context = {
      db,
      hub,
      hosts: this.hosts,
      log,
      sealer: testSealer,
      clusterTag: TAG,
      vmPrefix: 'fuse-',
      owner: this.owner,
      placementPolicy: 'spread',
      hostStaleMs: 30_000,
      startLeaseMs: 300,
      hostRetryMs: 100,
      archiving: { objectStore, retentionMs: 60_000 },
      network,
      publicAddress: () => 'fuse.test:8080',
    } as const;
    this.environments = new EnvironmentService(context);
    this.snapshots = new SnapshotService({ ...context, objectStore });
    this.reconciler = new Reconciler({
      db,
      hosts: this.hosts,
      environments: this.environments,
      snapshots: this.snapshots,
      log,
      clock: systemClock,
      clusterTag: TAG,
      owner: this.owner,
      network,
      localHostId,
      intervals: {
        ...defaultIntervals,
        leaseMs: 500,
        missingGraceMs: 200,
        orphanGraceMs: 300,
        pruneEveryMs: 0,
        ...intervals,
      },
    });
  }

  async reconcile(): Promise<boolean> {
    const led = await this.reconciler.cycle();
    await this.reconciler.settled();
    return led;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.reconciler[Symbol.asyncDispose]();
    await this.snapshots[Symbol.asyncDispose]();
    await this.hosts[Symbol.asyncDispose]();
  }
}

export interface Scene extends AsyncDisposable {
  test: TestDb;
  db: Db;
  host: TestHost;
  objectStore: ObjectStore;
  replica(intervals?: Partial<typeof defaultIntervals>, network?: NetworkConfig, localHostId?: string): Replica;
  admit(taskId: string, env?: EnvironmentService, more?: Partial<Admission>): Promise<EnvironmentRow>;
  state(uid: string): Promise<string | undefined>;
}

export async function openScene(engine: Engine, options: TestHostOptions = {}): Promise<Scene> {
  const test = await openTestDb(engine);
  const directory = await temporaryDirectory();
  const objectStore = await openObjectStore({ kind: 'file', directory: directory.path });
  const host = await TestHost.start({ objectStore, ...options });
  await new HostService(test.db, testSealer).register({ id: 'host-1', url: host.url, token: host.token });
  const hub = await EventHub.open(test.db);
  const replicas: Replica[] = [];
  const replica = (intervals: Partial<typeof defaultIntervals> = {}, network?: NetworkConfig, localHostId?: string) => {
    const made = new Replica({ db: test.another(), hub, objectStore }, intervals, network, localHostId);
    replicas.push(made);
    return made;
  };
  return {
    test,
    db: test.db,
    host,
    objectStore,
    replica,
    async admit(taskId, environments = replica().environments, more = {}) {
      const admitted = await test.db.transaction((tx) =>
        environments.admit(tx, { tenantId: 'default', taskId, spec: {}, env: {}, ...more }),
      );
      if (admitted.kind !== 'admitted') throw rejectionError(admitted);
      return admitted.environment;
    },
    state: async (uid) => (await environmentByUid(test.db.query, uid))?.state,
    [Symbol.asyncDispose]: async () => {
      for (const made of replicas) await made[Symbol.asyncDispose]();
      await hub[Symbol.asyncDispose]();
      await host[Symbol.asyncDispose]();
      await test[Symbol.asyncDispose]();
      await objectStore[Symbol.asyncDispose]();
      await directory[Symbol.asyncDispose]();
    },
  };
}
