/** The orchestrator, put together by hand. Started on its own HTTP listener, by main.ts or inside another process. */

import type { AddressInfo } from 'node:net';
import type { Host, RegisterHost } from '@fuse/contract';
import type { ObjectStore } from '@fuse/object-store';
import { Disposables, type Logger, newId, systemClock } from '@fuse/runtime';
import { ApiKeyService } from './api-keys/api-key-service.ts';
import { Credentials } from './api-keys/credentials.ts';
import { registerApiKeyRoutes } from './api-keys/routes.ts';
import { AuditLog } from './audit/audit-log.ts';
import { AUDIT_SWEEP_EVERY_MS, auditSweeper } from './audit/audit-sweeper.ts';
import { registerAuditRoutes } from './audit/routes.ts';
import { registerComputerRoutes } from './computer/routes.ts';
import type { OrchestratorConfig } from './config.ts';
import { ensureCluster } from './db/cluster.ts';
import { openDatabase } from './db/open.ts';
import type { EnvironmentContext } from './environments/environment-context.ts';
import { EnvironmentEvents } from './environments/environment-events.ts';
import { EnvironmentService } from './environments/environment-service.ts';
import { forkEnvironment } from './environments/fork-environment.ts';
import { registerEnvironmentRoutes } from './environments/routes.ts';
import { EventHub } from './events/events.ts';
import { FleetEvents } from './events/fleet-events.ts';
import { FleetFeed } from './events/fleet-feed.ts';
import { registerEventRoutes } from './events/routes.ts';
import { answerExec } from './execs/answer-exec.ts';
import { ArchiveCollector } from './execs/archive-collector.ts';
import { registerConnectRoutes } from './execs/connect-routes.ts';
import { ExecService } from './execs/exec-service.ts';
import { registerExecRoutes } from './execs/routes.ts';
import { FileService } from './files/file-service.ts';
import { registerFileRoutes } from './files/routes.ts';
import { GuestFileService } from './guest-files/guest-file-service.ts';
import { registerGuestFileRoutes } from './guest-files/routes.ts';
import { HostDirectory, type NearHost } from './hosts/host-directory.ts';
import { HostJoining } from './hosts/host-joining.ts';
import { installHostMetrics } from './hosts/host-metrics.ts';
import { HostService } from './hosts/host-service.ts';
import { registerHostRoutes } from './hosts/routes.ts';
import { Callers } from './http/callers.ts';
import { AllowList } from './http/cidr.ts';
import { type App, createHttpServer } from './http/http-server.ts';
import { createMetrics } from './http/metrics.ts';
import { registerOperationalRoutes } from './http/operational-routes.ts';
import { RateLimiter } from './http/rate-limit.ts';
import { rereadCertificates } from './http/reread-certificates.ts';
import type { ListedRoute } from './http/route-list.ts';
import type { UpgradeRoute } from './http/upgrade-route.ts';
import { registerImageRoutes } from './images/routes.ts';
import { installFleetMetrics } from './metrics/fleet-metrics.ts';
import { createReconcileMetrics } from './metrics/reconcile-metrics.ts';
import { registerNetworkRoutes } from './network/routes.ts';
import { registerOpenApiRoutes } from './openapi/routes.ts';
import { QueueServer } from './queue/queue-server.ts';
import { installQuotaMetrics } from './quotas/quota-metrics.ts';
import { endLeases, LeaderLease } from './reconciling/leader-lease.ts';
import { Reconciler } from './reconciling/reconciler.ts';
import { Collector } from './runs/collector.ts';
import type { DriveContext } from './runs/driving/drive.ts';
import { registerRunRoutes } from './runs/routes.ts';
import { RunService } from './runs/run-service.ts';
import { RunWorker } from './runs/run-worker.ts';
import { Wakeup } from './runs/wakeup.ts';
import { createSealer } from './secrets/aes-sealer.ts';
import { Resealer } from './secrets/resealing.ts';
import { LoginAttempts } from './sessions/login-attempts.ts';
import { registerSessionRoutes } from './sessions/routes.ts';
import { SessionService } from './sessions/session-service.ts';
import { ChunkCollector } from './snapshots/exporting/chunk-collector.ts';
import { SnapshotExporter } from './snapshots/exporting/snapshot-exporter.ts';
import { registerSnapshotRoutes } from './snapshots/routes.ts';
import { SnapshotService } from './snapshots/snapshot-service.ts';
import { registerTenantRoutes } from './tenants/routes.ts';
import { TenantService } from './tenants/tenant-service.ts';
import { registerTerminalRoutes } from './terminals/routes.ts';
import { registerTicketRoutes } from './tickets/routes.ts';
import { Tickets } from './tickets/tickets.ts';
import { registerTunnelRoutes } from './tunnels/routes.ts';
import { METER_EVERY_MS, Meter } from './usage/meter.ts';
import { registerUsageRoutes } from './usage/routes.ts';
import { UsageService } from './usage/usage-service.ts';

const HOST_RETRY_MS = 10_000;
const RESEAL_EVERY_MS = 600_000;
const RESEAL_LEASE_MS = 60_000;

export interface OrchestratorDeps {
  log: Logger;
  /** Closed by whoever opened it. */
  objectStore: ObjectStore;
  /** A host in this process: known before the first request is served and the first open run goes on. */
  localHost?: { registration: RegisterHost; connect: NearHost['connect'] };
  /** Tests stop drivers of runs here. */
  checkpoint?: DriveContext['checkpoint'];
}

/** Disposing stops accepting, lets what is under way finish within the shutdown timeout, and leaves every VM running. */
export interface Orchestrator extends AsyncDisposable {
  /** Where it listens. */
  readonly url: string;
  readonly routes: readonly ListedRoute[];
  readonly upgrades: readonly UpgradeRoute[];
  /** For a host in this process: registers it, keeping its age and a cordon when it was known already. */
  registerHost(host: RegisterHost): Promise<Host>;
}

export async function createOrchestrator(config: OrchestratorConfig, deps: OrchestratorDeps): Promise<Orchestrator> {
  const { log, objectStore } = deps;
  const disposables = new Disposables(log);
  try {
    await objectStore.check();
    const db = disposables.add('database', await openDatabase(config.database, log));
    const sealer = createSealer(config.sealing);
    const cluster = await ensureCluster(db, sealer);
    if (db.kind === 'pglite') await endLeases(db.query);
    const owner = newId('orch');
    const metrics = createMetrics();
    installFleetMetrics(metrics.registry, db, log);
    const audit = disposables.add('audit log', new AuditLog(db, log, metrics.auditEntriesLost));
    const sweeper = disposables.add(
      'sweeper of the audit log',
      auditSweeper(db, config.audit.retentionMs, {
        log,
        lease: new LeaderLease(db, { name: 'audit', owner, ms: 2 * AUDIT_SWEEP_EVERY_MS }),
        intervalMs: AUDIT_SWEEP_EVERY_MS,
      }),
    );
    const hub = disposables.add('event hub', await EventHub.open(db));
    const hostDirectory = disposables.add(
      'host clients',
      new HostDirectory(db, hub, log, sealer, { tls: config.hostTls, near: nearHost(deps) }),
    );
    const hosts = new HostService(db, sealer, { tls: config.hostTls, runRetentionMs: config.runs.retentionMs });
    const environmentContext: EnvironmentContext = {
      db,
      hub,
      hosts: hostDirectory,
      log,
      sealer,
      clusterTag: cluster.tag,
      vmPrefix: config.vmPrefix,
      owner,
      placementPolicy: config.placementPolicy,
      hostStaleMs: config.reconciling.hostStaleMs,
      startLeaseMs: config.takeoverMs,
      archiving: { objectStore, retentionMs: config.execs.retentionMs },
      hostRetryMs: HOST_RETRY_MS,
      network: config.network,
      publicAddress: () => config.publicAddress ?? listensAt,
      measurePhase: (phase, seconds) => metrics.startPhaseSeconds.observe({ phase }, seconds),
    };
    let listensAt = ''; // known before the first request is answered
    const environments = new EnvironmentService(environmentContext);
    const execs = new ExecService(environmentContext, environments);
    const snapshots = new SnapshotService({ ...environmentContext, objectStore });
    const reconciler = disposables.add(
      'reconciler',
      new Reconciler({
        db,
        hosts: hostDirectory,
        environments,
        snapshots,
        log,
        clock: systemClock,
        clusterTag: cluster.tag,
        owner,
        intervals: config.reconciling,
        localHostId: deps.localHost?.registration.id,
        network: config.network,
        metrics: createReconcileMetrics(metrics.registry),
      }),
    );
    const { retentionMs } = config.runs;
    const collector = disposables.add(
      'collector',
      new Collector({
        db,
        objectStore,
        log,
        clock: systemClock,
        lease: new LeaderLease(db, { name: 'collector', owner, ms: 2 * config.runs.collectEveryMs }),
        intervalMs: config.runs.collectEveryMs,
        sweepEveryMs: config.runs.sweepEveryMs,
      }),
    );
    const meter = disposables.add(
      'meter',
      new Meter({
        db,
        log,
        lease: new LeaderLease(db, { name: 'meter', owner, ms: 2 * METER_EVERY_MS }),
        intervalMs: METER_EVERY_MS,
      }),
    );
    const archiveCollector = disposables.add(
      'archive collector',
      new ArchiveCollector({
        db,
        objectStore,
        log,
        lease: new LeaderLease(db, { name: 'archive-collector', owner, ms: 2 * config.execs.collectEveryMs }),
        intervalMs: config.execs.collectEveryMs,
      }),
    );
    const chunkCollector = disposables.add(
      'chunk collector',
      new ChunkCollector({
        db,
        objectStore,
        log,
        clock: systemClock,
        lease: new LeaderLease(db, { name: 'chunk-collector', owner, ms: 2 * config.exports.collectEveryMs }),
        intervalMs: config.exports.collectEveryMs,
        sweepEveryMs: config.exports.sweepEveryMs,
      }),
    );
    const resealer = disposables.add(
      'resealer',
      new Resealer({
        db,
        sealer,
        log,
        lease: new LeaderLease(db, { name: 'resealing', owner, ms: RESEAL_LEASE_MS }),
        intervalMs: RESEAL_EVERY_MS,
      }),
    );
    const exporter = disposables.add(
      'snapshot exporter',
      new SnapshotExporter({
        db,
        hosts: hostDirectory,
        objectStore,
        log,
        config: config.exports,
      }),
    );
    const wakeup = new Wakeup();
    const worker = disposables.add(
      'run worker',
      new RunWorker({
        ...config.runs,
        queue: wakeup,
        db,
        sealer,
        environments,
        objectStore,
        log,
        checkpoint: deps.checkpoint ?? (async () => {}),
      }),
    );
    // Before the worker, which waits for the starts of its runs.
    disposables.add('environments', environments);
    disposables.add('snapshots', snapshots);
    // Before the environments, which it starts.
    const queueServer = disposables.add(
      'queue server',
      new QueueServer({ context: environmentContext, environments, worker, wakeup, retentionMs }),
    );
    const runs = new RunService({ db, sealer, hub, objectStore, environments, worker, retentionMs });
    const { maxFileBytes, fileLifetimeMs } = config.runs;
    const files = new FileService({ db, objectStore, maxFileBytes, lifetimeMs: fileLifetimeMs });
    const tickets = new Tickets(db, sealer);
    installHostMetrics(metrics.registry, db);
    const { masterToken } = config;
    const credentials = disposables.add('credentials', await Credentials.open(db, { log, masterToken }));
    const isOpen = masterToken === undefined && (config.database === 'memory' || !('url' in config.database));
    const http = createHttpServer({
      version: config.version,
      authenticator: new Callers({ masterToken, isOpen, credentials, publicUrl: config.publicUrl }),
      allowList: config.allowedCidrs.length === 0 ? undefined : new AllowList(config.allowedCidrs),
      rateLimiter: config.rateLimit && new RateLimiter(config.rateLimit, systemClock),
      tls: config.tls,
      audit,
      log,
      metrics,
      registerRoutes(app) {
        installQuotaMetrics(app, metrics.registry);
        registerOperationalRoutes(app, {
          version: config.version,
          metrics,
          readinessChecks: {
            state_store: () => db.ping(),
            fleet: () => hosts.checkFleet(config.reconciling.hostStaleMs),
          },
        });
        registerOpenApiRoutes(app);
        const feed = new FleetFeed(db, hub, log);
        registerEventRoutes(app, new FleetEvents(db, feed, config.reconciling.keepGoneMs));
        registerSessionRoutes(app, {
          sessions: masterToken === undefined ? undefined : new SessionService(db, credentials, masterToken),
          secureCookies: config.secureCookies,
          publicUrl: config.publicUrl,
          attempts: new LoginAttempts(systemClock),
        });
        registerAuditRoutes(app, db);
        registerUsageRoutes(app, new UsageService(db));
        registerTenantRoutes(app, new TenantService(db, credentials, environments));
        registerApiKeyRoutes(app, new ApiKeyService(db, credentials));
        registerHostRoutes(app, hosts, new HostJoining({ db, sealer, hosts, clusterTag: cluster.tag }));
        registerImageRoutes(app, hostDirectory);
        registerEnvironmentRoutes(app, {
          environments,
          events: new EnvironmentEvents(db, hub, environments),
          fork: (request) => forkEnvironment(environmentContext, { environments, snapshots }, request),
          refreshCredentials: () => credentials.refresh(),
          exec: (reply, ref, request) => answerExec(execs, reply, ref, request),
        });
        registerNetworkRoutes(app, { context: environmentContext, environments });
        registerComputerRoutes(app, environments);
        registerExecRoutes(app, execs);
        registerSnapshotRoutes(app, snapshots);
        registerRunRoutes(app, {
          runs,
          events: { db, hub, environments, objectStore, log },
          urls: {
            objectStore,
            signingKey: cluster.urlSigningKey,
            clock: systemClock,
            publicUrl: config.publicUrl,
          },
        });
        registerFileRoutes(app, files);
        const connections = { context: environmentContext, environments, tickets };
        registerTicketRoutes(app, connections);
        registerTerminalRoutes(app, connections);
        registerConnectRoutes(app, connections);
        registerTunnelRoutes(app, connections);
        registerGuestFileRoutes(app, new GuestFileService(environmentContext, environments));
      },
    });
    disposables.defer('HTTP server', () => closeHttp(http, config.shutdownTimeoutMs));
    if (deps.localHost !== undefined) {
      await hosts.refresh(deps.localHost.registration);
      await reconciler.cycle(); // what ended with the former process is not shown as if it ran
    }
    await listen(http, config.listen);
    const url = urlOf(http.server.address() as AddressInfo, config.tls); // it listens on a port, so this is no pipe
    listensAt = new URL(url).host;
    if (config.rereadTls !== undefined)
      disposables.add(
        'certificates',
        rereadCertificates(http, [hostDirectory, hosts], { ...config.rereadTls, initial: config, log }),
      );
    reconciler.start();
    collector.start();
    meter.start();
    sweeper.start();
    archiveCollector.start();
    chunkCollector.start();
    if (config.sealing.current !== undefined) resealer.start();
    await exporter.start();
    await worker.start();
    await queueServer.start();
    if (isOpen) log.warn('no ORCH_AUTH_TOKEN: every caller is the master');
    else if (masterToken === undefined)
      log.warn('no ORCH_AUTH_TOKEN: only API keys are taken, and nobody is the master');
    if (config.sealing.current === undefined)
      log.warn('no TOKEN_ENCRYPTION_KEY: secrets are in the database in clear text');
    log.info({ url, owner, cluster: cluster.tag, database: db.kind }, 'orchestrator ready');
    return {
      url,
      routes: http.routeList,
      upgrades: http.upgrades.routes,
      registerHost: (request) => hosts.refresh(request),
      [Symbol.asyncDispose]: () => disposables[Symbol.asyncDispose](),
    };
  } catch (error) {
    await disposables[Symbol.asyncDispose]();
    throw error;
  }
}

async function listen(app: App, { host, port }: OrchestratorConfig['listen']): Promise<void> {
  if (host !== undefined) {
    await app.listen({ port, host });
    return;
  }
  try {
    await app.listen({ port, host: '::' }); // both families
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? '';
    if (!['EAFNOSUPPORT', 'EADDRNOTAVAIL'].includes(code)) throw error;
    await app.listen({ port, host: '0.0.0.0' }); // a machine without IPv6
  }
}

/** Waits for answers under way; cuts what is left when time is up. */
async function closeHttp(app: App, timeoutMs: number): Promise<void> {
  const cut = setTimeout(() => app.server.closeAllConnections(), timeoutMs);
  try {
    await app.close();
  } finally {
    clearTimeout(cut);
  }
}

function urlOf({ address, family, port }: AddressInfo, tls: OrchestratorConfig['tls']): string {
  const host = address === '::' || address === '0.0.0.0' ? '127.0.0.1' : address;
  return `${tls === undefined ? 'http' : 'https'}://${family === 'IPv6' && host.includes(':') ? `[${host}]` : host}:${port}`;
}

const nearHost = ({ localHost }: OrchestratorDeps): NearHost | undefined =>
  localHost === undefined ? undefined : { url: localHost.registration.url, connect: localHost.connect };
