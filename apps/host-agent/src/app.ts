/** The host agent, put together by hand. Started on its own HTTP listener, by main.ts or inside another process. */
import { setMaxListeners } from 'node:events';
import { mkdir } from 'node:fs/promises';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { AppError } from '@fuse/contract';
import { type ObjectStore, openObjectStore } from '@fuse/object-store';
import { Disposables, type Logger, memorySockets, Rereading, sleep } from '@fuse/runtime';
import type { HostAgentConfig } from './config.ts';
import { Gpus } from './gpus/gpus.ts';
import { connectGuest } from './guest/guest-client.ts';
import { Fences } from './http/fences.ts';
import { createHttpServer, type ServerTls, useCertificates } from './http/server.ts';
import { type Assets, loadAssets } from './images/assets.ts';
import { withOwnKernel } from './images/own-kernel.ts';
import { Joining } from './joining/joining.ts';
import { ownToken } from './joining/own-token.ts';
import { announceDataDirectory } from './leftovers/data-directories.ts';
import { sweepLeftovers } from './leftovers/sweep-leftovers.ts';
import { HostNetwork } from './network/host-network.ts';
import { SnapshotTransfer } from './snapshots/chunks/snapshot-transfer.ts';
import { Snapshots } from './snapshots/snapshots.ts';
import { Templates } from './templates/templates.ts';
import { makeTemplatesAhead } from './templates/templates-ahead.ts';
import { openSpawner } from './vmm/children.ts';
import { openDriver } from './vmm/open-driver.ts';
import { capacityReport } from './vms/capacity.ts';
import { lockDataDirectory } from './vms/data-lock.ts';
import type { VmHost } from './vms/vm-host.ts';
import { Vms } from './vms/vms.ts';

export interface HostAgentDeps {
  log: Logger;
  /** Shared with whoever opened it, and closed there; without one, the configured store is opened. */
  store?: ObjectStore;
}

/** Disposing stops serving and leaves the VMs running: the next host agent adopts them. */
export interface HostAgent extends AsyncDisposable {
  /** Where it listens. */
  readonly url: string;
  /** A connection from within this process, where it listens too. */
  connect(options?: { allowHalfOpen?: boolean }): Duplex;
  /** For the end of a machine that has no other host agent to come. */
  destroyAllVms(): Promise<void>;
}

const MIB = 1024 ** 2;
const DRAIN_MS = 5_000;
const LAST_ANSWERS_MS = 500;

export async function createHostAgent(
  config: HostAgentConfig,
  { log, store: shared }: HostAgentDeps,
): Promise<HostAgent> {
  const disposables = new Disposables(log);
  try {
    await mkdir(config.dataDirectory, { recursive: true, mode: 0o700 });
    disposables.add('data lock', await lockDataDirectory(config.dataDirectory));
    const assets = await withOwnKernel(await loadAssets(config.assetsManifestPath), config.vmm.kernelPath);
    disposables.add('spawner', openSpawner(log, assets.programs.jailer.path));
    if (process.geteuid?.() === 0) {
      disposables.add('announcement of the data directory', await announceDataDirectory(config.dataDirectory));
      await sweepLeftovers({ confinement: config.confinement.mode, log });
    }
    const store = shared ?? disposables.add('object store', await openObjectStore(config.objectStore));
    await store.check();
    const driver = await openDriver({
      vmm: config.vmm,
      dataDirectory: config.dataDirectory,
      kernelPath: assets.kernel.path,
      log,
      confinement: config.confinement,
      diskRate: config.diskRate,
      networkBytesPerSecond: config.network.vmBytesPerSecond,
    });
    const network = disposables.add('network', await openNetwork(config, assets, log));
    const templates = disposables.add(
      'templates',
      new Templates({
        ...{ driver, assets, log },
        directory: join(config.dataDirectory, 'templates'),
        withCard: (work, signal) => network.withIdleCard(work, signal),
      }),
    );
    await templates.sweep();
    const snapshots = disposables.add(
      'snapshots',
      await Snapshots.open({ directory: join(config.dataDirectory, 'snapshots'), log }),
    );
    const storageReserveBytes = config.storageReserveMb * MIB;
    const transfer = new SnapshotTransfer({
      ...{ snapshots, store, log, storageReserveBytes },
      directory: config.dataDirectory,
    });
    const host: VmHost = {
      driver,
      templates,
      snapshots,
      network,
      // Firecracker passes nothing through.
      gpus: new Gpus({ ...config.gpus, ...(driver.name === 'qemu' ? {} : { choice: 'off' }) }),
      importSnapshot: (wanted, signal) => transfer.import(wanted, signal),
      assets,
      store,
      log,
      connectGuest: (vmm) => connectGuest(vmm, { log }),
      vmsDirectory: join(config.dataDirectory, 'vms'),
      maxVms: config.capacity.maxVms,
      storageReserveBytes,
    };
    let httpClosed: Promise<void> = Promise.resolve();
    let closeConnections = (): void => {};
    disposables.defer('HTTP server', async () => {
      await Promise.race([httpClosed, sleep(LAST_ANSWERS_MS)]);
      closeConnections(); // of clients that stand still in the middle of a request
      await httpClosed;
    });
    const vms = disposables.add('VMs', await Vms.open(host));
    const token = config.token ?? (await ownToken(config.dataDirectory));
    const stopping = new AbortController();
    setMaxListeners(0, stopping.signal);
    const http = createHttpServer({
      log,
      token,
      tls: config.tls,
      fences: await Fences.open(config.dataDirectory),
      vms,
      snapshots,
      transfer,
      store,
      assets,
      capacity: () => capacityReport(config.capacity, { ...host, vms }),
      stopping: stopping.signal,
    });
    disposables.defer('requests under way', async () => {
      httpClosed = http.close();
      closeConnections = () => http.server.closeAllConnections();
      stopping.abort(new AppError('unavailable', 'the host agent is stopping'));
      await Promise.race([httpClosed, sleep(DRAIN_MS)]); // what takes longer ends with its VM being let go
    });
    await http.listen(config.listen);
    const url = urlOf(http.server.address() as AddressInfo, config.tls); // it listens on a port, so this is no pipe
    log.info(
      { url, backend: driver.name, accelerator: driver.accelerator, vms: vms.list().length },
      'host agent ready',
    );
    const wanted = config.templatesAhead ?? [];
    const hasNetwork = network.missing === undefined;
    const noMore = new AbortController();
    const ahead = makeTemplatesAhead(wanted, { templates, assets, hasNetwork, log }, noMore.signal);
    disposables.defer('templates made ahead', () => {
      noMore.abort();
      return ahead;
    });
    if (config.tls !== undefined && config.rereadTls !== undefined)
      disposables.add(
        'certificates',
        new Rereading<ServerTls | undefined>(config.tls, {
          what: 'certificates',
          ...config.rereadTls,
          apply: (tls) => tls && useCertificates(http, tls),
          log,
        }),
      );
    if (config.join !== undefined) disposables.add('joining', new Joining(config.join, { token, log })).start();
    return {
      url,
      connect: (options) => connectWithin(http.server, options),
      destroyAllVms: () => vms.destroyAll(),
      [Symbol.asyncDispose]: () => disposables[Symbol.asyncDispose](),
    };
  } catch (error) {
    await disposables[Symbol.asyncDispose]();
    throw error;
  }
}

function openNetwork(config: HostAgentConfig, { programs }: Assets, log: Logger): Promise<HostNetwork> {
  return HostNetwork.open({
    dataDirectory: config.dataDirectory,
    config: config.network,
    programs: programs.gateway && { gateway: programs.gateway.path, jailer: programs.jailer.path },
    gatewayUid: config.confinement.uidBase - 1, // the VMMs' begin there
    confinement: config.confinement.mode,
    log,
  });
}

function connectWithin(server: Server, options?: { allowHalfOpen?: boolean }): Duplex {
  const [near, far] = memorySockets(options);
  if (server.listening) server.emit('connection', far);
  else near.destroy(Object.assign(new Error('it does not listen any more'), { code: 'ECONNREFUSED' }));
  return near;
}

function urlOf({ address, family, port }: AddressInfo, tls: ServerTls | undefined): string {
  return `${tls === undefined ? 'http' : 'https'}://${family === 'IPv6' ? `[${address}]` : address}:${port}`;
}
