/**
 * A host agent on real VMs for tests, with a data directory of its own. What set-up built is taken from FUSE_HOME; templates are
 * kept there between test files, since making one takes seconds.
 */
import { mkdir, readFile, symlink } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { ExecStdin, FrameParser, frameType } from '@fuse/contract';
import type {
  CollectedOutputs,
  CollectOutputs,
  CreateVm,
  HostExec,
  HostExecResult,
  HostSnapshot,
  HostVm,
  RestoreVm,
  StartExec,
  TakeSnapshot,
} from '@fuse/host-protocol';
import { openObjectStore } from '@fuse/object-store';
import { createLogger, newId } from '@fuse/runtime';
import { expectNoLeaks, type ResourceSnapshot, resourceSnapshot, temporaryDirectory } from '@fuse/testing';
import { createHostAgent, type HostAgent } from '../app.ts';
import type { HostAgentConfig } from '../config.ts';
import { DEFAULT_CONFINEMENT } from '../confinement/confinement.ts';
import { DEFAULT_GPUS } from '../gpus/config.ts';
import { DEFAULT_NETWORK } from '../network/config.ts';
import { DEFAULT_VMM } from '../vmm/vmm-config.ts';

const home = process.env.FUSE_HOME ?? join(homedir(), '.fuse');
const TOKEN = 'token-of-the-test-host';
export const TEST_SHAPE = { cpus: 1, ram_mb: 256, storage_gb: 1 };
export const TEST_TAG = 'test-cluster';

export class TestHost implements AsyncDisposable {
  readonly directory: string;
  readonly #config: HostAgentConfig;
  readonly #before: ResourceSnapshot;
  readonly #removeDirectory: () => PromiseLike<void>;
  #agent: HostAgent | undefined;
  #url: string | undefined;

  private constructor(
    directory: string,
    config: HostAgentConfig,
    before: ResourceSnapshot,
    removeDirectory: () => PromiseLike<void>,
  ) {
    this.directory = directory;
    this.#config = config;
    this.#before = before;
    this.#removeDirectory = removeDirectory;
  }

  static async open(change: Partial<HostAgentConfig> = {}): Promise<TestHost> {
    const { path, [Symbol.asyncDispose]: remove } = await temporaryDirectory('fuse-host-');
    const data = join(path, 'host');
    const templates = join(home, 'testing', 'templates');
    await mkdir(templates, { recursive: true });
    await mkdir(data);
    await symlink(templates, join(data, 'templates'));
    await symlink(join(home, 'assets'), join(path, 'assets'));
    const config: HostAgentConfig = {
      listen: { host: '127.0.0.1', port: 0 },
      token: TOKEN,
      tls: undefined,
      join: undefined,
      assetsManifestPath: join(home, 'assets', 'manifest.json'),
      dataDirectory: data,
      capacity: { cpus: 8, ramMb: 8_192, storageGb: undefined, maxVms: 249 },
      storageReserveMb: 64,
      vmm: DEFAULT_VMM,
      confinement: DEFAULT_CONFINEMENT,
      diskRate: {},
      network: DEFAULT_NETWORK,
      gpus: DEFAULT_GPUS,
      objectStore: { kind: 'file', directory: join(path, 'objects') },
      logLevel: process.env.FUSE_TEST_LOG_LEVEL ?? 'fatal',
      ...change,
    };
    const host = new TestHost(path, config, await resourceSnapshot({ directories: [join(data, 'vms')] }), remove);
    await host.start();
    return host;
  }

  get vmsDirectory(): string {
    return join(this.#config.dataDirectory, 'vms');
  }

  get snapshotsDirectory(): string {
    return join(this.#config.dataDirectory, 'snapshots');
  }

  get url(): string {
    return this.#url ?? this.agent.url;
  }

  /** Calls go to a program that the test started with `environment`. */
  useUrl(url: string): void {
    this.#url = url;
  }

  /** Of a program on the same data directory. */
  get environment(): Record<string, string> {
    return {
      PATH: process.env.PATH ?? '',
      FUSE_HOME: this.directory,
      FUSE_HOST_LISTEN: '127.0.0.1:0',
      FUSE_HOST_TOKEN: TOKEN,
      FUSE_HOST_STORAGE_RESERVE_MB: '64',
      FUSE_TEMPLATES: 'none',
      FUSE_EGRESS_NETNS: this.#config.network.egressNamespace ?? '',
      FUSE_DNS_SERVERS: this.#config.network.resolvers?.join(',') ?? '',
    };
  }

  get agent(): HostAgent {
    if (this.#agent === undefined) throw new Error('the host agent is stopped');
    return this.#agent;
  }

  async start(change: Partial<HostAgentConfig> = {}): Promise<void> {
    const log = createLogger({ name: 'host-agent', level: this.#config.logLevel });
    this.#agent = await createHostAgent({ ...this.#config, ...change }, { log });
  }

  /** The VMs run on. */
  async stop(): Promise<void> {
    await this.#agent?.[Symbol.asyncDispose]();
    this.#agent = undefined;
  }

  /** Fails when anything of the test's VMs is left. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#url = undefined;
    if (this.#agent === undefined) await this.start();
    await this.agent.destroyAllVms();
    await this.stop();
    try {
      await expectNoLeaks(this.#before);
    } finally {
      await this.#removeDirectory();
    }
  }

  get authorization(): { authorization: string } {
    return { authorization: `Bearer ${TOKEN}` };
  }

  async fetch(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
    return fetch(`${this.url}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${TOKEN}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      ...(signal === undefined ? {} : { signal }),
    });
  }

  /** Throws, with the answer, on any status that is not 2xx. */
  async call<T>(method: string, path: string, body?: unknown): Promise<T> {
    const response = await this.fetch(method, path, body);
    const text = await response.text();
    if (!response.ok) throw new CallFailed(response.status, text);
    return (text === '' ? undefined : JSON.parse(text)) as T; // the caller names the route's own type
  }

  list = (): Promise<{ vms: HostVm[] }> => this.call('GET', '/v1/vms');

  create(order: Partial<CreateVm> = {}, id = newId('vm')): Promise<HostVm> {
    return this.call('PUT', `/v1/vms/${id}`, {
      image: 'base',
      shape: TEST_SHAPE,
      tag: TEST_TAG,
      hostname: 'test-vm',
      ...order,
    });
  }

  pause = (id: string): Promise<HostVm> => this.call('POST', `/v1/vms/${id}/pause`);

  resume = (id: string): Promise<HostVm> => this.call('POST', `/v1/vms/${id}/resume`);

  restore = (id: string, request: RestoreVm): Promise<HostVm> => this.call('POST', `/v1/vms/${id}/restore`, request);

  /** Usable when this resolves, or durable. */
  snapshot(
    vmId: string,
    { wait, ...order }: Partial<TakeSnapshot> & { wait?: 'durable' } = {},
    id = newId('snap'),
  ): Promise<HostSnapshot> {
    const query = wait === undefined ? '' : `?wait=${wait}`;
    const body: TakeSnapshot = { tag: TEST_TAG, include_memory: true, ...order };
    return this.call('PUT', `/v1/vms/${vmId}/snapshots/${id}${query}`, body);
  }

  deleteSnapshot = (id: string): Promise<{ deleted: boolean; freed_bytes: number }> =>
    this.call('DELETE', `/v1/snapshots/${id}`);

  /** A new VM from the snapshot. */
  fork(snapshotId: string, order: Partial<CreateVm> = {}, id = newId('fork')): Promise<HostVm> {
    return this.create({ seed: { snapshot_id: snapshotId }, hostname: id.slice(0, 63), ...order }, id);
  }

  /** Of the VM's present machine. */
  async machineDirectory(vmId: string): Promise<string> {
    const record = await readFile(join(this.vmsDirectory, vmId, 'vm.json'), 'utf8');
    return join(this.vmsDirectory, vmId, (JSON.parse(record) as { machine: string }).machine);
  }

  async vmmPid(vmId: string): Promise<number> {
    const identity = await readFile(join(await this.machineDirectory(vmId), 'vmm.json'), 'utf8');
    return (JSON.parse(identity) as { pid: number }).pid;
  }

  destroy(id: string, archiveKey?: string): Promise<{ destroyed: boolean; destroy_ms: number; archived: boolean }> {
    return this.call('DELETE', `/v1/vms/${id}${archiveKey === undefined ? '' : `?archive_key=${archiveKey}`}`);
  }

  /** Bytes to a command's stdin. */
  async stdin(
    vmId: string,
    execId: string,
    bytes: Uint8Array | string,
    query = '',
    signal?: AbortSignal,
  ): Promise<ExecStdin> {
    const response = await fetch(`${this.url}/v1/vms/${vmId}/execs/${execId}/stdin?${query}`, {
      method: 'POST',
      headers: this.authorization,
      body: Buffer.from(bytes),
      ...(signal === undefined ? {} : { signal }),
    });
    const text = await response.text();
    if (!response.ok) throw new CallFailed(response.status, text);
    return ExecStdin.parse(JSON.parse(text));
  }

  startExec(vmId: string, argv: string[], more: Partial<StartExec> = {}, execId = newId('x')): Promise<HostExec> {
    const request: StartExec = { argv, timeout_ms: 60_000, max_log_bytes: 16 * 1024 * 1024, ...more };
    return this.call('PUT', `/v1/vms/${vmId}/execs/${execId}`, request);
  }

  async endOf(vmId: string, execId: string): Promise<HostExec> {
    for (;;) {
      const exec = await this.call<HostExec>('GET', `/v1/vms/${vmId}/execs/${execId}?wait_ms=30000`);
      if (exec.state !== 'running') return exec;
    }
  }

  /** Runs a command to its end. */
  async run(vmId: string, argv: string[], more: Partial<StartExec> = {}): Promise<RunResult> {
    const { id } = await this.startExec(vmId, argv, more);
    const exec = await this.endOf(vmId, id);
    return { ...(await this.result(vmId, id)), exec };
  }

  shell = (vmId: string, script: string, more: Partial<StartExec> = {}): Promise<RunResult> =>
    this.run(vmId, ['sh', '-c', script], more);

  async result(vmId: string, execId: string, limitBytes = 1024 * 1024): Promise<RunResult> {
    const result = await this.call<HostExecResult>('GET', `/v1/vms/${vmId}/execs/${execId}/result?limit=${limitBytes}`);
    return {
      exec: result.exec,
      truncated: result.truncated,
      stdout: Buffer.from(result.stdout_base64, 'base64'),
      stderr: Buffer.from(result.stderr_base64, 'base64'),
    };
  }

  /** The log from byte `offset`: all that there is, or until the end when following. Rejects when the stream is cut. */
  async log(vmId: string, execId: string, options: { offset?: number; follow?: boolean } = {}): Promise<Buffer> {
    const { offset = 0, follow = false } = options;
    const path = `/v1/vms/${vmId}/execs/${execId}/log?offset=${offset}&follow=${follow ? 1 : 0}`;
    return Buffer.from(await (await this.fetch('GET', path)).arrayBuffer());
  }

  /** Returns its key. */
  async putObject(name: string, bytes: Uint8Array): Promise<string> {
    const key = `${newId('test')}/${name}`;
    await using store = await openObjectStore(this.#config.objectStore);
    await store.put(key, bytes);
    return key;
  }

  async object(key: string): Promise<Buffer> {
    await using store = await openObjectStore(this.#config.objectStore);
    const { body } = await store.get(key);
    return Buffer.concat(await body.toArray());
  }

  collect(vmId: string, request: Partial<CollectOutputs>): Promise<CollectedOutputs> {
    return this.call('POST', `/v1/vms/${vmId}/outputs`, {
      cwd: '/workspace',
      globs: [],
      key_prefix: newId('outputs'),
      max_files: 1_000,
      max_file_bytes: 1024 ** 3,
      max_total_bytes: 1024 ** 3,
      ...request,
    });
  }
}

export interface RunResult {
  exec: HostExec;
  truncated: boolean;
  stdout: Buffer;
  stderr: Buffer;
}

export class CallFailed extends Error {
  readonly status: number;
  readonly code: string;
  readonly details: Record<string, string>;

  constructor(status: number, text: string) {
    super(`${status} ${text}`);
    this.status = status;
    const { error } = JSON.parse(text) as { error: { code: string; details?: Record<string, string> } };
    this.code = error.code;
    this.details = error.details ?? {};
  }
}

export function streamsOf(log: Uint8Array): { stdout: Buffer; stderr: Buffer; exited: boolean } {
  const frames = [...new FrameParser().push(log)];
  const of = (type: number) =>
    Buffer.concat(frames.filter((frame) => frame.type === type).map(({ payload }) => payload));
  return {
    stdout: of(frameType.stdout),
    stderr: of(frameType.stderr),
    exited: frames.at(-1)?.type === frameType.exit,
  };
}
