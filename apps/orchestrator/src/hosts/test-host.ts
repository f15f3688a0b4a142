/**
 * A host agent for tests: the whole protocol of packages/host-protocol over HTTP, with local processes in a temporary directory
 * in place of VMs, and handles to make it fail as real ones do.
 */

import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join, matchesGlob, relative } from 'node:path';
import type { Duplex, Writable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import type { TlsOptions } from 'node:tls';
import { AppError, type ExecStdin, HEARTBEAT_MS, Healthcheck, type ListProcesses, toEnvelope } from '@fuse/contract';
import {
  type CollectedOutputs,
  CollectOutputs,
  CreateVm,
  ExportSnapshot,
  FENCE_HEADER,
  GuestFiles,
  GuestSignal,
  type HostCapacityReport,
  type HostExec,
  type HostExecResult,
  type HostImage,
  type HostVm,
  parseFence,
  RestoreVm,
  STALE_FENCE,
  StartExec,
  type VmGpus,
  VmNetwork,
} from '@fuse/host-protocol';
import type { ObjectStore } from '@fuse/object-store';
import { archiveExecs } from './test-host-archive.ts';
import { connectExec, logStart, pumpLog, tunnel } from './test-host-connect.ts';
import { TestHostExec } from './test-host-exec.ts';
import { isFileUpload, operateOnFiles, serveFiles } from './test-host-files.ts';
import { TestHostNetworks } from './test-host-networks.ts';
import { TestHostSnapshots } from './test-host-snapshots.ts';

interface TestVm {
  vm: HostVm;
  env: Record<string, string>;
  root: string;
  execs: Map<string, TestHostExec>;
  healthcheck?: Healthcheck;
  gpus?: VmGpus;
}

export interface TestHostOptions {
  token?: string;
  capacity?: Partial<HostCapacityReport>;
  images?: HostImage[];
  objectStore?: ObjectStore;
  tls?: TlsOptions;
}

type Answer = { status: number; body?: unknown } | 'streamed';
type Call = {
  method: string;
  path: string;
  query: URLSearchParams;
  body: unknown;
  /** Its body is not read yet where it is a stream. */
  request: IncomingMessage;
  response: ServerResponse;
};

const isStdin = (path: string): boolean => /^\/v1\/vms\/[^/]+\/execs\/[^/]+\/stdin$/.test(path);

export class TestHost implements AsyncDisposable {
  readonly vms = new Map<string, TestVm>();
  readonly capacity: HostCapacityReport;
  readonly token: string;
  images: HostImage[];
  /** Awaited before anything of a call is looked at. */
  arriving: (call: { method: string; path: string }) => Promise<void> | void = () => {};
  /** Awaited before a call is handled; may throw an AppError (the answer) or destroy the connection. */
  before: (call: { method: string; path: string }, response: Writable) => Promise<void> | void = () => {};
  /** Awaited after a call was handled, before it is answered. */
  after: (call: { method: string; path: string }, response: ServerResponse) => Promise<void> | void = () => {};
  /** How often each exec id was really started. */
  readonly started = new Map<string, number>();
  createdVms = 0;
  /** The most VMs that existed at once. */
  mostVms = 0;
  /** The most that ran at once. */
  mostRunning = 0;
  /** VMs whose saved memory is damaged. */
  readonly damaged = new Set<string>();
  /** Restores in place that were really done. */
  restored = 0;
  /** Of followed logs and connections. */
  heartbeatMs = HEARTBEAT_MS;
  /** Asked when a log is answered: it is cut after so many bytes. */
  cutLogAfter: () => number = () => Number.POSITIVE_INFINITY;
  /** As with an object store that cannot be reached. */
  failArchives = false;
  /** The highest fence of each cluster that was seen. */
  readonly fences = new Map<string, number>();
  url = '';
  readonly snapshots: TestHostSnapshots;
  readonly networks = new TestHostNetworks();
  readonly #creating = new Map<string, Promise<Answer>>();
  readonly #objectStore: ObjectStore | undefined;
  readonly #tls: TlsOptions | undefined;
  readonly #upgraded = new Set<Duplex>();
  #server: Server | undefined;

  private constructor(options: TestHostOptions) {
    this.token = options.token ?? 'host-token-of-the-tests';
    this.#objectStore = options.objectStore;
    this.#tls = options.tls;
    this.snapshots = new TestHostSnapshots(options.objectStore);
    this.images = options.images ?? [{ name: 'base', digest: 'sha256:0', size_bytes: 1 }];
    this.capacity = {
      cpus: 8,
      ram_mb: 16_384,
      storage_gb: 100,
      free_storage_gb: 100,
      vm_count: 100,
      arch: 'amd64',
      gpus: 0,
      gpu_kind: '',
      backend: 'qemu',
      accelerator: 'tcg',
      templates: [],
      ...options.capacity,
    };
  }

  static async start(options: TestHostOptions = {}): Promise<TestHost> {
    const host = new TestHost(options);
    await host.listen();
    return host;
  }

  /** Also after `stop`: the same port, the same VMs. */
  async listen(): Promise<void> {
    const port = this.url === '' ? 0 : Number(new URL(this.url).port);
    const serve = (request: IncomingMessage, response: ServerResponse) => void this.#serve(request, response);
    const tls = this.#tls;
    const server = tls === undefined ? createServer(serve) : createTlsServer(tls, serve);
    server.on('secureConnection', (socket) => {
      socket.allowHalfOpen = true;
    });
    server.on('upgrade', (request, socket, head) => void this.#upgrade(request, socket, head));
    server.keepAliveTimeout = 200; // shorter than the client's: it must live with connections closed under it
    await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
    this.#server = server;
    this.url = `${tls === undefined ? 'http' : 'https'}://127.0.0.1:${(server.address() as AddressInfo).port}`;
  }

  /** As a killed agent: connections are cut, VMs live on. */
  async stop(): Promise<void> {
    const server = this.#server;
    server?.closeAllConnections();
    this.cutConnections();
    await new Promise<void>((resolve) => (server === undefined ? resolve() : server.close(() => resolve())));
  }

  /** As the guest's next verdict; undefined: it knows of no healthcheck any more. */
  setHealth(id: string, health: HostVm['health']): void {
    const found = this.vms.get(id);
    if (found === undefined) throw new Error(`no VM ${id}`);
    const { health: _, ...vm } = found.vm;
    found.vm = health === undefined ? vm : { ...vm, health };
  }

  /** Those to execs and ports, in the middle. */
  cutConnections(): void {
    for (const socket of this.#upgraded) socket.destroy();
  }

  /** As a killed VMM. */
  killVm(id: string, why = 'the VMM ended by signal SIGKILL'): void {
    const found = this.vms.get(id);
    if (found === undefined) throw new Error(`no VM ${id}`);
    found.vm = { ...found.vm, state: 'dead', error: why };
    for (const exec of found.execs.values()) exec.lose(why);
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    response.on('error', () => {});
    const url = new URL(request.url ?? '/', 'http://host');
    const call = { method: request.method ?? '', path: url.pathname, query: url.searchParams };
    let answer: Answer;
    try {
      await this.arriving(call);
      const isRaw = isStdin(call.path) || isFileUpload(call.method, call.path);
      const bytes = isRaw ? Buffer.alloc(0) : await buffer(request);
      const body: unknown = bytes.length === 0 ? undefined : JSON.parse(bytes.toString('utf8'));
      if (request.headers.authorization !== `Bearer ${this.token}`) throw new AppError('unauthorized', 'invalid token');
      this.#checkFence(request.headers[FENCE_HEADER]);
      await this.before(call, response);
      answer = await this.#handle({ ...call, body, request, response });
      await this.after(call, response);
    } catch (error) {
      const known = error instanceof AppError ? error : new AppError('internal', String(error), { cause: error });
      answer = { status: known.status, body: toEnvelope(known) };
    }
    if (answer === 'streamed' || response.destroyed) return;
    if (!request.complete) response.setHeader('connection', 'close');
    response.writeHead(answer.status, { 'content-type': 'application/json' });
    response.end(answer.body === undefined ? undefined : JSON.stringify(answer.body));
  }

  #checkFence(header: string | string[] | undefined): void {
    const fence = typeof header === 'string' ? parseFence(header) : undefined;
    if (fence === undefined) return;
    const seen = this.fences.get(fence.tag) ?? 0;
    if (fence.value < seen)
      throw new AppError('conflict', 'a fence that is over', { details: { reason: STALE_FENCE, seen: String(seen) } });
    this.fences.set(fence.tag, fence.value);
  }

  async #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    socket.on('error', () => {});
    this.#upgraded.add(socket);
    socket.once('close', () => this.#upgraded.delete(socket));
    const url = new URL(request.url ?? '/', 'http://host');
    try {
      if (request.headers.authorization !== `Bearer ${this.token}`) throw new AppError('unauthorized', 'invalid token');
      await this.before({ method: 'GET', path: url.pathname }, socket);
      const [, , noun, id = '', what, which = '', more] = url.pathname.split('/');
      const found = noun === 'vms' ? this.vms.get(id) : undefined;
      if (found === undefined) throw new AppError('not_found', `no VM ${id}`);
      const exec = found.execs.get(which);
      if (what === 'ports' && more === 'connect') {
        if (found.vm.state === 'dead') throw new AppError('vm_lost', found.vm.error ?? 'it died');
        return await tunnel(Number(which), socket, head);
      }
      if (what !== 'execs' || more !== 'connect' || exec === undefined)
        throw new AppError('not_found', `no exec ${which}`);
      await connectExec(exec, socket, head, { query: url.searchParams, heartbeatMs: this.heartbeatMs });
    } catch (error) {
      const known = error instanceof AppError ? error : new AppError('internal', String(error), { cause: error });
      const body = JSON.stringify(toEnvelope(known));
      socket.end(
        `HTTP/1.1 ${known.status} Refused\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
      );
    }
  }

  async #handle(call: Call): Promise<Answer> {
    const [, , noun, id = '', what, execId = '', more] = call.path.split('/');
    if (noun === 'capacity') return { status: 200, body: this.capacity };
    if (noun === 'images') return { status: 200, body: { images: this.images } };
    if (noun === 'snapshots') return this.#snapshot(call, id, what);
    if (noun !== 'vms') throw new AppError('route_not_found', `no such route: ${call.path}`);
    if (id === '') return { status: 200, body: { vms: [...this.vms.values()].map(({ vm }) => this.#shown(vm)) } };
    if (what === undefined) return this.#vm(call, id);
    const found = this.vms.get(id);
    if (found === undefined) throw new AppError('not_found', `no VM ${id}`);
    if (what === 'network') return this.#network(call, id);
    // Of a dead VM the host still has what its commands printed.
    const logsAlone = what === 'outputs' && CollectOutputs.parse(call.body).globs.length === 0;
    if (found.vm.state === 'dead' && what !== 'execs' && what !== 'restore' && !logsAlone)
      throw new AppError('vm_lost', found.vm.error ?? 'it died');
    if (what === 'restore') return this.#restore(found, RestoreVm.parse(call.body));
    if (what === 'pause' || what === 'resume') return this.#move(found, what);
    if (found.vm.state === 'paused' && call.method !== 'GET')
      throw new AppError('conflict', `VM ${id} is ${found.vm.state}`);
    if (what === 'snapshots') return this.snapshots.take(execId, this.#shown(found.vm), found.root, call.body);
    if (what === 'healthcheck') return this.#putHealthcheck(found, Healthcheck.parse(call.body));
    if (what === 'files') return this.#putFiles(found, GuestFiles.parse(call.body));
    if (what === 'file' || what === 'tar' || what === 'watch') return guestFiles(found, what, call);
    if (what === 'outputs') return this.#collect(found, CollectOutputs.parse(call.body));
    if (what === 'execs') return this.#exec(call, found, execId, more);
    if (what === 'processes') return this.#processes(call, found, Number(execId));
    throw new AppError('route_not_found', `no such route: ${call.path}`);
  }

  async #vm(call: Call, id: string): Promise<Answer> {
    if (call.method === 'DELETE') return this.#destroy(id, call.query.get('archive_key'));
    if (call.method === 'GET') {
      const known = this.vms.get(id);
      if (known === undefined) throw new AppError('not_found', `no VM ${id}`);
      return { status: 200, body: this.#shown(known.vm) };
    }
    const creating = this.#creating.get(id) ?? this.#create(id, CreateVm.parse(call.body));
    this.#creating.set(id, creating);
    return creating.finally(() => this.#creating.delete(id));
  }

  async #destroy(id: string, archiveKey: string | null): Promise<Answer> {
    await this.#creating.get(id)?.catch(() => {}); // what is being made is destroyed once it is there
    const known = this.vms.get(id);
    for (const exec of known?.execs.values() ?? []) exec.lose('destroyed');
    const archived = archiveKey !== null && known !== undefined && (await this.#archive(archiveKey, known));
    this.vms.delete(id);
    if (known !== undefined) await removeRoot(known.root);
    const network = this.networks.remove(id);
    const body = { destroyed: known !== undefined, destroy_ms: 1, archived, ...(network && { network }) };
    return { status: 200, body };
  }

  async #archive(key: string, { execs }: TestVm): Promise<boolean> {
    if (this.failArchives || this.#objectStore === undefined || execs.size === 0) return false;
    await this.#objectStore.put(key, archiveExecs([...execs.values()]));
    return true;
  }

  async #create(id: string, body: CreateVm): Promise<Answer> {
    const known = this.vms.get(id);
    if (known !== undefined) {
      if (known.vm.tag !== body.tag) throw new AppError('conflict', `VM ${id} belongs to another cluster`);
      return { status: 200, body: this.#shown(known.vm) };
    }
    if (!this.images.some((image) => image.name === body.image))
      throw new AppError('invalid_argument', `no image ${body.image}`);
    const root =
      body.seed === undefined ? await mkdtemp(join(tmpdir(), 'fuse-test-vm-')) : await this.snapshots.open(body.seed);
    this.networks.create(id, body, body.seed && this.snapshots.withCard.has(body.seed.snapshot_id));
    const { image, shape, tag } = body;
    const vm: HostVm = { id, state: 'running', tag, image, shape, created_at: new Date().toISOString() };
    const { env = {}, gpus } = body;
    this.vms.set(id, { vm, env, root, execs: new Map(), ...(gpus && { gpus }) });
    this.createdVms += 1;
    this.mostVms = Math.max(this.mostVms, this.vms.size);
    this.#countRunning();
    return { status: 201, body: this.#shown(vm) };
  }

  #shown(vm: HostVm): HostVm {
    const network = this.networks.of(vm.id);
    return network === undefined ? vm : { ...vm, network };
  }

  #network({ method, body }: Call, id: string): Answer {
    if (method === 'GET') return { status: 200, body: this.networks.report(id) };
    this.networks.set(id, VmNetwork.parse(body).policies);
    return { status: 204 };
  }

  async #snapshot(call: Call, id: string, what: string | undefined): Promise<Answer> {
    if (id === '') return { status: 200, body: { snapshots: this.snapshots.list() } };
    if (what === 'chunks') return { status: 200, body: await this.snapshots.chunks(id) };
    if (what === 'export')
      return { status: 200, body: await this.snapshots.export(id, ExportSnapshot.parse(call.body)) };
    if (call.method === 'DELETE') return { status: 200, body: await this.snapshots.delete(id) };
    const until = performance.now() + Number(call.query.get('wait_ms') ?? 0);
    while (this.snapshots.get(id).state === 'usable' && performance.now() < until && !call.response.destroyed)
      await new Promise((resolve) => setTimeout(resolve, 10));
    return { status: 200, body: this.snapshots.get(id) };
  }

  async #restore(found: TestVm, order: RestoreVm): Promise<Answer> {
    if (found.vm.restore_id === order.restore_id) return { status: 200, body: this.#shown(found.vm) };
    const root = await this.snapshots.open(order);
    if (this.vms.get(found.vm.id) !== found) {
      await rm(root, { recursive: true, force: true });
      throw new AppError('not_found', `no VM ${found.vm.id}`); // destroyed meanwhile
    }
    for (const exec of found.execs.values()) exec.lose('restored from a snapshot');
    const former = found.root;
    found.root = root;
    await rm(former, { recursive: true, force: true });
    found.vm = { ...found.vm, state: 'running', restore_id: order.restore_id };
    this.restored += 1;
    this.#countRunning();
    return { status: 200, body: this.#shown(found.vm) };
  }

  #move(found: TestVm, what: 'pause' | 'resume'): Answer {
    const state = what === 'pause' ? 'paused' : 'running';
    if (what === 'resume' && this.damaged.has(found.vm.id))
      throw new AppError('integrity_error', 'memory: its bytes do not match their digest');
    if (found.vm.state !== state) for (const exec of found.execs.values()) exec.freeze(what === 'pause');
    found.vm = { ...found.vm, state };
    this.#countRunning();
    return { status: 200, body: this.#shown(found.vm) };
  }

  #countRunning(): void {
    const running = [...this.vms.values()].filter(({ vm }) => vm.state === 'running').length;
    this.mostRunning = Math.max(this.mostRunning, running);
  }

  #putHealthcheck(found: TestVm, healthcheck: Healthcheck): Answer {
    found.healthcheck = healthcheck;
    found.vm = { ...found.vm, health: { state: 'starting', since: new Date().toISOString() } };
    return { status: 204 };
  }

  async #putFiles(found: TestVm, { files }: GuestFiles): Promise<Answer> {
    const { root, vm } = found;
    const written = [];
    for (const file of files) {
      const bytes =
        file.content_base64 === undefined
          ? await this.#object(file.object_key ?? '')
          : Buffer.from(file.content_base64, 'base64');
      await mkdir(dirname(`${root}${file.path}`), { recursive: true });
      await writeFile(`${root}${file.path}`, bytes, { mode: Number.parseInt(file.mode ?? '0644', 8) });
      written.push({ path: file.path, size_bytes: bytes.length, sha256: sha256(bytes) });
    }
    if (this.vms.get(vm.id) !== found) {
      await removeRoot(root);
      throw new AppError('not_found', `no VM ${vm.id}`); // destroyed meanwhile
    }
    return { status: 200, body: { files: written } };
  }

  async #object(key: string): Promise<Buffer> {
    if (this.#objectStore === undefined) throw new Error('this test host has no object store');
    return buffer((await this.#objectStore.get(key)).body);
  }

  async #exec(call: Call, vm: TestVm, execId: string, more: string | undefined): Promise<Answer> {
    if (execId === '') return { status: 200, body: { execs: [...vm.execs.values()].map(({ status }) => status) } };
    const known = vm.execs.get(execId);
    if (call.method === 'PUT') return this.#startExec(vm, execId, known, call);
    if (call.method === 'DELETE') {
      known?.kill();
      return { status: 204 };
    }
    if (known === undefined) throw new AppError('not_found', `no exec ${execId}`);
    if (call.method === 'POST' && vm.vm.state === 'dead') throw new AppError('vm_lost', vm.vm.error ?? 'it died');
    if (more === 'stdin') return { status: 200, body: await writeStdin(known, call) };
    if (more === 'signal') {
      known.signal(GuestSignal.parse(call.body));
      return { status: 204 };
    }
    if (more === 'result') return execResult(known, Number(call.query.get('limit')));
    if (more === 'log') {
      await streamLog(known, call, { heartbeatMs: this.heartbeatMs, cutAfter: this.cutLogAfter() });
      return 'streamed';
    }
    await untilEnd(known, call);
    return { status: 200, body: known.status };
  }

  #processes({ method, body }: Call, { execs }: TestVm, pid: number): Answer {
    const running = [...execs.values()].filter(({ status }) => status.state === 'running');
    if (method === 'POST') {
      const found = running.find((exec) => exec.pid === pid);
      if (found === undefined) throw new AppError('not_found', `no process ${pid}`);
      found.signal(GuestSignal.parse(body));
      return { status: 204 };
    }
    const processes = running.map((exec) => ({
      pid: exec.pid,
      ppid: 1,
      command: exec.status.argv,
      user: 'root',
      state: 'S',
      started_at: exec.status.created_at,
      cpu_seconds: 0,
      memory_bytes: 1_000_000,
      exec_id: exec.id,
    }));
    return { status: 200, body: { processes, truncated: false } satisfies ListProcesses };
  }

  async #startExec(vm: TestVm, execId: string, known: TestHostExec | undefined, call: Call): Promise<Answer> {
    const spec = StartExec.parse(call.body);
    if (known !== undefined) return { status: 200, body: await waitedFor(known, call) };
    if (vm.vm.state === 'dead') throw new AppError('vm_lost', vm.vm.error ?? 'it died');
    const stdin = spec.stdin_object_key === undefined ? undefined : await this.#object(spec.stdin_object_key);
    const exec = await TestHostExec.start({ id: execId, root: vm.root, env: vm.env, stdin }, spec);
    this.started.set(execId, (this.started.get(execId) ?? 0) + 1);
    vm.execs.set(execId, exec);
    return { status: 201, body: await waitedFor(exec, call) };
  }

  async #collect({ root, execs }: TestVm, request: CollectOutputs): Promise<Answer> {
    const store = this.#objectStore;
    if (store === undefined) throw new Error('this test host has no object store');
    const outputs: CollectedOutputs['outputs'] = [];
    const keep = async (path: string, kind: 'file' | 'log', bytes: Buffer) => {
      const key = `${request.key_prefix}/${outputs.length}`;
      const info = await store.put(key, bytes);
      outputs.push({ path, kind, object_key: key, size_bytes: info.sizeBytes, sha256: info.sha256 });
    };
    const base = `${root}${request.cwd}`;
    for (const entry of await readdir(base, { recursive: true }).catch(() => [])) {
      const path = relative(base, join(base, entry));
      if (!request.globs.some((glob) => matchesGlob(path, glob))) continue;
      if ((await stat(join(base, entry))).isFile()) await keep(path, 'file', await readFile(join(base, entry)));
    }
    const exec = request.exec_id === undefined ? undefined : execs.get(request.exec_id);
    if (exec === undefined) return { status: 200, body: { outputs, skipped: [] } };
    await keep('.fuse/stdout.log', 'log', Buffer.concat(exec.stdout));
    await keep('.fuse/stderr.log', 'log', Buffer.concat(exec.stderr));
    const frames_object_key = `${request.key_prefix}/frames`;
    await store.put(frames_object_key, Buffer.concat(exec.frames));
    return { status: 200, body: { outputs, skipped: [], frames_object_key } };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    for (const { root, execs } of this.vms.values()) {
      for (const exec of execs.values()) exec.lose('the test ends');
      await rm(root, { recursive: true, force: true });
    }
    await this.snapshots.dispose();
    this.vms.clear();
  }
}

/** Also while something writes into it. */
const removeRoot = (root: string): Promise<void> =>
  rm(root, { recursive: true, force: true, maxRetries: 10, retryDelay: 5 });

const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');

function guestFiles({ vm, root }: TestVm, what: 'file' | 'tar' | 'watch', call: Call): Promise<Answer> {
  const { state } = vm;
  if (state !== 'running') throw new AppError('conflict', `the VM is ${state}`, { details: { state } });
  return call.method === 'POST'
    ? operateOnFiles(root, call.path.split('/')[5] ?? '', call.body)
    : serveFiles(root, what, call);
}

function execResult(exec: TestHostExec, limit: number): Answer {
  if (exec.status.state === 'running') throw new AppError('conflict', 'still running');
  return { status: 200, body: { exec: exec.status, ...headsOf(exec, limit) } satisfies HostExecResult };
}

function headsOf(exec: TestHostExec, limit: number): Omit<HostExecResult, 'exec'> {
  const head = (chunks: Buffer[]) => Buffer.concat(chunks).subarray(0, limit).toString('base64');
  return {
    stdout_base64: head(exec.stdout),
    stderr_base64: head(exec.stderr),
    truncated: exec.bytes.stdout > limit || exec.bytes.stderr > limit,
  };
}

async function untilEnd(exec: TestHostExec, { query, response }: Call): Promise<void> {
  const until = performance.now() + Number(query.get('wait_ms') ?? 0);
  while (exec.status.state === 'running' && performance.now() < until && !response.destroyed)
    await exec.changed(Math.min(until - performance.now(), 100));
}

async function waitedFor(exec: TestHostExec, call: Call): Promise<HostExec> {
  await untilEnd(exec, call);
  const withResult = exec.status.state === 'exited' && call.query.has('wait_ms');
  return withResult
    ? { ...exec.status, result: headsOf(exec, Number(call.query.get('limit') ?? 1_048_576)) }
    : exec.status;
}

async function writeStdin(exec: TestHostExec, { request, query }: Call): Promise<ExecStdin> {
  const offset = query.get('offset');
  const order = { ...(offset === null ? {} : { offset: Number(offset) }), end: query.get('end') === '1' };
  return exec.writeStdin(request.iterator({ destroyOnReturn: false }), order);
}

async function streamLog(
  exec: TestHostExec,
  { query, response }: Call,
  { heartbeatMs, cutAfter }: { heartbeatMs: number; cutAfter: number },
): Promise<void> {
  const offset = logStart(exec, query);
  response.writeHead(200, { 'content-type': 'application/octet-stream', 'fuse-log-offset': String(offset) });
  response.flushHeaders();
  const sink = Number.isFinite(cutAfter) ? cutting(response, cutAfter) : response;
  const isWhole = await pumpLog(exec, sink, {
    offset,
    follow: query.get('follow') === '1',
    heartbeatMs: query.get('heartbeat') === '1' ? heartbeatMs : Number.POSITIVE_INFINITY,
    isGone: () => response.destroyed,
  });
  // A lost exec's log is cut, not ended.
  if (isWhole) response.end();
  else response.destroy();
}

/** Takes so many bytes, then the connection is gone. */
function cutting(response: ServerResponse, bytes: number): NodeJS.WritableStream {
  let left = bytes;
  const write = (piece: Uint8Array) => {
    const rest = left;
    left -= piece.length;
    if (left > 0) return response.write(piece);
    if (rest > 0) response.write(piece.subarray(0, rest), () => response.destroy());
    else response.destroy();
    return false;
  };
  return new Proxy(response, { get: (target, name) => (name === 'write' ? write : Reflect.get(target, name)) });
}
