/** The states of a Firecracker, and what it takes in each. */

/** Refused, in Firecracker's words. */
export class Refusal extends Error {
  override readonly name = 'Refusal';
}

export type Jailed = (command: { do: string } & Record<string, unknown>) => Promise<unknown>;

type Body = Record<string, unknown>;

const PRE_BOOT_ONLY = [
  '/metrics',
  '/logger',
  '/serial',
  '/machine-config',
  '/boot-source',
  '/vsock',
  '/entropy',
  '/actions',
  '/snapshot/load',
];
const AFTER_START = 'The requested operation is not supported after starting the microVM.';
const BEFORE_START = 'The requested operation is not supported before starting the microVM.';
/** Where loading writes a new generation id. */
export const GENERATION_AT = 4096 + 64;
export const NEW_GENERATION = 'new-generation-1';
const MIB = 1_048_576;

export class FakeMachine {
  readonly jailed: Jailed;
  state: 'Not started' | 'Running' | 'Paused' = 'Not started';
  /** A resource of a boot was configured: nothing can be loaded any more. */
  bootPath = false;
  listensOn = 1024;
  onRunnable: (socketPath: string) => Promise<void> = async () => {};
  readonly drives = new Map<string, Body>();
  readonly interfaces = new Map<string, Body>();
  readonly #done = new Set<string>();
  #memoryMiB = 128;
  #hasKernel = false;
  #socketPath: string | undefined;
  #tracksDirtyPages = false;

  constructor(jailed: Jailed) {
    this.jailed = jailed;
  }

  async handle(method: string, path: string, body: unknown): Promise<object | undefined> {
    if (method === 'GET') return { id: 'x', state: this.state, vmm_version: '1.17.0', app_name: 'Firecracker' };
    const given = body as Body; // it has passed the description
    const isRunnable = this.state !== 'Not started';
    if (
      method === 'PUT' &&
      isRunnable &&
      (PRE_BOOT_ONLY.includes(path) || path.startsWith('/drives/') || path.startsWith('/network-interfaces/'))
    )
      throw new Refusal(AFTER_START);
    if (!isRunnable && (method === 'PATCH' || path === '/snapshot/create')) throw new Refusal(BEFORE_START);
    if (method === 'PUT') await this.#put(path, given);
    else await this.#patch(path, given);
    return undefined;
  }

  async #put(path: string, body: Body): Promise<void> {
    const [, kind, id = ''] = path.split('/');
    switch (kind) {
      case 'metrics':
        if (this.#done.has(path))
          throw new Refusal(
            'Metrics error: Cannot initialize the metrics system due to bad user input: Metrics system already initialized',
          );
        this.#done.add(path);
        return void (await this.jailed({ do: 'open', path: body.metrics_path }));
      case 'serial':
        if (body.serial_out_path !== undefined) await this.jailed({ do: 'open', path: body.serial_out_path });
        return;
      case 'snapshot':
        return id === 'load' ? this.#load(body) : this.#create(body);
      case 'actions':
        return this.#start(String(body.action_type));
    }
    this.bootPath = true;
    switch (kind) {
      case 'machine-config':
        if (Number(body.vcpu_count) > 32) throw new Refusal('Machine config error: The vCPU number is invalid!');
        this.#memoryMiB = Number(body.mem_size_mib);
        return;
      case 'boot-source':
        for (const file of [body.kernel_image_path, body.initrd_path])
          if (file !== undefined) await this.jailed({ do: 'read', path: file });
        this.#hasKernel = true;
        return;
      case 'drives':
        await this.jailed({ do: body.is_read_only === true ? 'read' : 'open', path: body.path_on_host });
        this.drives.set(id, body);
        return;
      case 'network-interfaces':
        for (const [other, { guest_mac }] of this.interfaces)
          if (other !== id && guest_mac === body.guest_mac)
            throw new Refusal(`Network config error: The MAC address is already in use: ${guest_mac}`);
        this.interfaces.set(id, body);
        return;
      case 'vsock':
        if (this.#socketPath !== undefined)
          throw new Refusal(
            'Vsock config error: Cannot create backend for vsock device: Error binding to the host-side Unix socket: Address in use (os error 98)',
          );
        this.#socketPath = String(body.uds_path);
        return;
    }
  }

  async #start(action: string): Promise<void> {
    if (action !== 'InstanceStart') throw new Refusal(BEFORE_START);
    if (!this.#hasKernel) throw new Refusal('Start microvm error: Cannot start microvm without kernel configuration.');
    await this.jailed({ do: 'boot', bytes: this.#memoryMiB * MIB });
    this.state = 'Running';
    if (this.#socketPath !== undefined) await this.onRunnable(this.#socketPath);
  }

  async #load(body: Body): Promise<void> {
    if (this.bootPath)
      throw new Refusal(
        'Load snapshot error: Loading a microVM snapshot not allowed after configuring boot-specific resources.',
      );
    const { backend_path: path } = body.mem_backend as Body; // required with it by the description
    try {
      await this.jailed({ do: 'read', path: body.snapshot_path });
      for (const file of ['/image', '/disk']) await this.jailed({ do: file === '/disk' ? 'open' : 'read', path: file });
      await this.jailed({ do: 'load', path, generation: [GENERATION_AT, NEW_GENERATION] });
    } catch (error) {
      // Too dirty to recover: it answers, and ends.
      setTimeout(() => void this.jailed({ do: 'exit', code: 1, says: 'Failed to load' }), 20).unref();
      throw new Refusal(
        `Load snapshot error: Failed to restore from snapshot: ${error instanceof Error ? error.message : error}`,
      );
    }
    for (const id of ['image', 'writable']) this.drives.set(id, {});
    for (const each of (body.network_overrides as Body[] | undefined) ?? [])
      this.interfaces.set(String(each.iface_id), each);
    this.#tracksDirtyPages = body.track_dirty_pages === true;
    this.state = body.resume_vm === true ? 'Running' : 'Paused';
    await this.onRunnable(String((body.vsock_override as Body | undefined)?.uds_path ?? '/run/guest.sock'));
  }

  async #create(body: Body): Promise<void> {
    if (this.state !== 'Paused')
      throw new Refusal(
        'Create snapshot error: Cannot save microvm state: Operation not allowed: save/restore unavailable while running',
      );
    if (body.snapshot_type === 'Diff' && !this.#tracksDirtyPages)
      throw new Refusal('Create snapshot error: the fake has no mincore');
    await this.jailed({
      do: 'save',
      device: body.snapshot_path,
      memory: body.mem_file_path,
      state: 'the state of devices',
      whole: body.snapshot_type !== 'Diff',
    });
  }

  async #patch(path: string, body: Body): Promise<void> {
    const [, kind, id = ''] = path.split('/');
    if (kind === 'vm') this.state = body.state === 'Paused' ? 'Paused' : 'Running';
    else if (kind === 'drives' && !this.drives.has(id))
      throw new Refusal(`Drive config error: Unable to patch the block device: Cannot find device ${id}`);
    else if (kind === 'network-interfaces' && !this.interfaces.has(id))
      throw new Refusal(`Network config error: Unable to find interface ${id}`);
  }
}
