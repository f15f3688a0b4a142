/**
 * One host agent, call by call as packages/host-protocol says. Every call may be repeated: ids are the orchestrator's.
 * Errors: see host-transport.ts. Two that callers meet often: `not_found` (no such VM or exec), `unavailable` (host
 * unreachable, late, or without room: for `createVm` nothing is left behind in the last case only).
 */

import type { Readable } from 'node:stream';
import { HEARTBEAT_MS, type Healthcheck } from '@fuse/contract';
import {
  CollectedOutputs,
  type CollectOutputs,
  type CreateVm,
  ExportedSnapshot,
  type ExportSnapshot,
  FENCE_HEADER,
  type Fence,
  formatFence,
  type GuestFiles,
  HOST_TUNNEL_PROTOCOL,
  HostCapacityReport,
  HostExec,
  HostExecResult,
  HostImage,
  HostSnapshot,
  HostVm,
  type RestoreVm,
  SnapshotChunks,
  type StartExec,
  type TakeSnapshot,
  type VmNetwork,
  VmNetworkReport,
  VmNetworkTotals,
} from '@fuse/host-protocol';
import { z } from 'zod';
import { HostExecs } from './host-execs.ts';
import { HostFiles } from './host-files.ts';
import { type HostAddress, HostTransport } from './host-transport.ts';
import type { Upgraded } from './host-upgrade.ts';

const SHORT_MS = 10_000;
/** A cold boot under emulation with the template made on the way. */
const CREATE_MS = 180_000;
const DESTROY_MS = 60_000;
/** Memory is copied and read; some of it may come from the object store first. */
const SNAPSHOT_MS = 180_000;
/** Memory goes to disk, and comes back flat. */
const PAUSE_MS = 180_000;
const DELETE_SNAPSHOT_MS = 60_000;
const START_EXEC_MS = 30_000;
const TRANSFER_MS = 900_000;
/** A server in a guest that is slow to accept is waited for by the guest, which gives up before. */
const CONNECT_MS = 60_000;
/** Whole memories and disks are read, and go to the object store. What was uploaded stays, so a late one is only asked again. */
const EXPORT_MS = 3_600_000;
/** The longest `waitMs` of one call: whatever lies on the way to the host lets a connection be silent for so long. Who waits longer asks again. */
export const MAX_WAIT_MS = HEARTBEAT_MS;

const Images = z.object({ images: z.array(HostImage) });
const Vms = z.object({ vms: z.array(HostVm) });
const Snapshots = z.object({ snapshots: z.array(HostSnapshot) });
const DeletedSnapshot = z.object({ deleted: z.boolean(), freed_bytes: z.number() });
const Destroyed = z.object({
  destroyed: z.boolean(),
  destroy_ms: z.number(),
  archived: z.boolean().default(false),
  network: VmNetworkTotals.optional(),
});
const Written = z.object({
  files: z.array(z.object({ path: z.string(), size_bytes: z.number(), sha256: z.string() })),
});

export class HostClient implements AsyncDisposable {
  readonly #host: HostAddress;
  readonly #transport: HostTransport;
  readonly execs: HostExecs;
  readonly files: HostFiles;

  constructor(host: HostAddress, transport: HostTransport = new HostTransport(host)) {
    this.#host = host;
    this.#transport = transport;
    this.execs = new HostExecs(this.#transport);
    this.files = new HostFiles(this.#transport);
  }

  /** Over the same connections: its short calls are refused by a host that has seen a later fence. Not to be disposed. */
  fencedBy(fence: Fence): HostClient {
    const headers = { [FENCE_HEADER]: formatFence(fence) };
    return new HostClient(this.#host, new HostTransport(this.#host, { transport: this.#transport, headers }));
  }

  /** How it is now. */
  async heartbeat(signal?: AbortSignal): Promise<{ report: HostCapacityReport; images: HostImage[] }> {
    const [report, images] = await Promise.all([this.capacity(signal), this.images(signal)]);
    return { report, images };
  }

  capacity(signal?: AbortSignal): Promise<HostCapacityReport> {
    return this.#transport.json(
      { method: 'GET', path: '/v1/capacity', timeoutMs: SHORT_MS, signal },
      HostCapacityReport,
    );
  }

  async images(signal?: AbortSignal): Promise<HostImage[]> {
    const answer = await this.#transport.json(
      { method: 'GET', path: '/v1/images', timeoutMs: SHORT_MS, signal },
      Images,
    );
    return answer.images;
  }

  async vms(signal?: AbortSignal): Promise<HostVm[]> {
    const answer = await this.#transport.json({ method: 'GET', path: '/v1/vms', timeoutMs: SHORT_MS, signal }, Vms);
    return answer.vms;
  }

  vm(vmId: string, signal?: AbortSignal): Promise<HostVm> {
    return this.#transport.json({ method: 'GET', path: `/v1/vms/${vmId}`, timeoutMs: SHORT_MS, signal }, HostVm);
  }

  createVm(vmId: string, body: CreateVm, signal?: AbortSignal): Promise<HostVm> {
    return this.#transport.json({ method: 'PUT', path: `/v1/vms/${vmId}`, body, timeoutMs: CREATE_MS, signal }, HostVm);
  }

  /** With an archive key, what its commands were and wrote becomes that object first; `archived` says whether there is one. */
  destroyVm(
    vmId: string,
    { archiveKey, signal }: { archiveKey?: string | undefined; signal?: AbortSignal } = {},
  ): Promise<z.infer<typeof Destroyed>> {
    const query = archiveKey === undefined ? '' : `?archive_key=${encodeURIComponent(archiveKey)}`;
    return this.#transport.json(
      { method: 'DELETE', path: `/v1/vms/${vmId}${query}`, timeoutMs: DESTROY_MS, signal },
      Destroyed,
    );
  }

  /** Paused when it resolves: memory and disk are safe, its VMM is gone. Whatever it rejects with, the host knows the VM's state. */
  pauseVm(vmId: string, signal?: AbortSignal): Promise<HostVm> {
    return this.#transport.json({ method: 'POST', path: `/v1/vms/${vmId}/pause`, timeoutMs: PAUSE_MS, signal }, HostVm);
  }

  /** Running with a new identity when it resolves. `integrity_error`: its memory is damaged. */
  resumeVm(vmId: string, signal?: AbortSignal): Promise<HostVm> {
    return this.#transport.json(
      { method: 'POST', path: `/v1/vms/${vmId}/resume`, timeoutMs: PAUSE_MS, signal },
      HostVm,
    );
  }

  async putFiles(vmId: string, body: GuestFiles, signal?: AbortSignal) {
    const path = `/v1/vms/${vmId}/files`;
    const answer = await this.#transport.json({ method: 'PUT', path, body, timeoutMs: TRANSFER_MS, signal }, Written);
    return answer.files;
  }

  /** Started at most once per `execId`, however often it is called. */
  startExec(vmId: string, execId: string, body: StartExec, signal?: AbortSignal): Promise<HostExec> {
    const path = `/v1/vms/${vmId}/execs/${execId}`;
    return this.#transport.json({ method: 'PUT', path, body, timeoutMs: START_EXEC_MS, signal }, HostExec);
  }

  /** As `startExec`; the answer waits for the exec's end, at most `waitMs` (at most 10 s), and has its `result` then. */
  startShortExec(
    vmId: string,
    execId: string,
    { command, waitMs, limitBytes }: { command: StartExec; waitMs: number; limitBytes: number },
  ): Promise<HostExec> {
    const path = `/v1/vms/${vmId}/execs/${execId}?wait_ms=${waitMs}&limit=${limitBytes}`;
    const timeoutMs = START_EXEC_MS + waitMs;
    return this.#transport.json({ method: 'PUT', path, body: command, timeoutMs }, HostExec);
  }

  /** At the exec's end, or after `waitMs` (at most MAX_WAIT_MS) with `state: "running"`. */
  exec(vmId: string, execId: string, waitMs: number, signal?: AbortSignal): Promise<HostExec> {
    const path = `/v1/vms/${vmId}/execs/${execId}?wait_ms=${Math.min(Math.max(0, Math.floor(waitMs)), MAX_WAIT_MS)}`;
    return this.#transport.json({ method: 'GET', path, timeoutMs: waitMs + SHORT_MS, signal }, HostExec);
  }

  execResult(vmId: string, execId: string, limitBytes: number, signal?: AbortSignal): Promise<HostExecResult> {
    const path = `/v1/vms/${vmId}/execs/${execId}/result?limit=${limitBytes}`;
    return this.#transport.json({ method: 'GET', path, timeoutMs: START_EXEC_MS, signal }, HostExecResult);
  }

  /** Frames (contract/frames.ts) from byte `offset`; `follow` goes on to the exec's end. A stream that ends without an exit frame was cut. */
  execLog(
    vmId: string,
    execId: string,
    { offset, follow, signal }: { offset: number; follow: boolean; signal?: AbortSignal },
  ): Promise<Readable> {
    const path = `/v1/vms/${vmId}/execs/${execId}/log?offset=${offset}${follow ? '&follow=1' : ''}`;
    return this.#transport.stream({ method: 'GET', path, timeoutMs: START_EXEC_MS, signal });
  }

  /** Its whole process tree is killed; the record stays. */
  killExec(vmId: string, execId: string, signal?: AbortSignal): Promise<void> {
    const path = `/v1/vms/${vmId}/execs/${execId}`;
    return this.#transport.nothing({ method: 'DELETE', path, timeoutMs: START_EXEC_MS, signal });
  }

  /** One connection to the TCP server on that port of the guest, in frames (tunnel-frames.ts). `conflict` when nothing listens there. */
  tunnel(vmId: string, port: number, signal?: AbortSignal): Promise<Upgraded> {
    const path = `/v1/vms/${vmId}/ports/${port}/connect`;
    return this.#transport.upgrade({ method: 'GET', path, timeoutMs: CONNECT_MS, signal }, HOST_TUNNEL_PROTOCOL);
  }

  putHealthcheck(vmId: string, body: Healthcheck, signal?: AbortSignal): Promise<void> {
    const path = `/v1/vms/${vmId}/healthcheck`;
    return this.#transport.nothing({ method: 'PUT', path, body, timeoutMs: START_EXEC_MS, signal });
  }

  /** Enforced when it resolves. */
  putNetwork(vmId: string, body: VmNetwork, signal?: AbortSignal): Promise<void> {
    const path = `/v1/vms/${vmId}/network`;
    return this.#transport.nothing({ method: 'PUT', path, body, timeoutMs: SHORT_MS, signal });
  }

  network(vmId: string, signal?: AbortSignal): Promise<VmNetworkReport> {
    const path = `/v1/vms/${vmId}/network`;
    return this.#transport.json({ method: 'GET', path, timeoutMs: SHORT_MS, signal }, VmNetworkReport);
  }

  collectOutputs(vmId: string, body: CollectOutputs, signal?: AbortSignal): Promise<CollectedOutputs> {
    const path = `/v1/vms/${vmId}/outputs`;
    return this.#transport.json({ method: 'POST', path, body, timeoutMs: TRANSFER_MS, signal }, CollectedOutputs);
  }

  /** Once per `restore_id`. */
  restoreVm(vmId: string, body: RestoreVm, signal?: AbortSignal): Promise<HostVm> {
    const path = `/v1/vms/${vmId}/restore`;
    return this.#transport.json({ method: 'POST', path, body, timeoutMs: SNAPSHOT_MS, signal }, HostVm);
  }

  async snapshots(signal?: AbortSignal): Promise<HostSnapshot[]> {
    const call = { method: 'GET', path: '/v1/snapshots', timeoutMs: SHORT_MS, signal } as const;
    return (await this.#transport.json(call, Snapshots)).snapshots;
  }

  /** Usable when it resolves; taken once per id. */
  takeSnapshot(vmId: string, snapshotId: string, body: TakeSnapshot, signal?: AbortSignal): Promise<HostSnapshot> {
    const path = `/v1/vms/${vmId}/snapshots/${snapshotId}`;
    return this.#transport.json({ method: 'PUT', path, body, timeoutMs: SNAPSHOT_MS, signal }, HostSnapshot);
  }

  /** Once it is `durable` or `broken`, or after `waitMs` (at most MAX_WAIT_MS) as it is. */
  snapshot(snapshotId: string, waitMs: number, signal?: AbortSignal): Promise<HostSnapshot> {
    const path = `/v1/snapshots/${snapshotId}?wait_ms=${Math.min(Math.max(0, Math.floor(waitMs)), MAX_WAIT_MS)}`;
    return this.#transport.json({ method: 'GET', path, timeoutMs: waitMs + SHORT_MS, signal }, HostSnapshot);
  }

  deleteSnapshot(snapshotId: string, signal?: AbortSignal): Promise<{ deleted: boolean; freed_bytes: number }> {
    const call = {
      method: 'DELETE',
      path: `/v1/snapshots/${snapshotId}`,
      timeoutMs: DELETE_SNAPSHOT_MS,
      signal,
    } as const;
    return this.#transport.json(call, DeletedSnapshot);
  }

  /** What an export would consist of; `integrity_error` when the snapshot is damaged. */
  snapshotChunks(snapshotId: string, signal?: AbortSignal): Promise<SnapshotChunks> {
    const path = `/v1/snapshots/${snapshotId}/chunks`;
    return this.#transport.json({ method: 'POST', path, timeoutMs: EXPORT_MS, signal }, SnapshotChunks);
  }

  exportSnapshot(snapshotId: string, body: ExportSnapshot, signal?: AbortSignal): Promise<ExportedSnapshot> {
    const path = `/v1/snapshots/${snapshotId}/export`;
    return this.#transport.json({ method: 'PUT', path, body, timeoutMs: EXPORT_MS, signal }, ExportedSnapshot);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#transport[Symbol.asyncDispose]();
  }
}

/** One client, and so one set of connections, per host; replaced when its address or token changes. */
export class HostClients implements AsyncDisposable {
  readonly #clients = new Map<string, { address: HostAddress; client: HostClient }>();

  for(host: HostAddress): HostClient {
    const known = this.#clients.get(host.id);
    const { id, url, token, tls } = host;
    if (known?.address.url === url && known.address.token === token && known.address.tls === tls) return known.client;
    // The old one's calls in flight go on; its idle connections close by themselves.
    const client = new HostClient(host);
    this.#clients.set(id, { address: { id, url, token, tls }, client });
    return client;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { client } of this.#clients.values()) await client[Symbol.asyncDispose]();
    this.#clients.clear();
  }
}
