/**
 * A Firecracker to test against where there is none, or no KVM for it. The API is served here: each request must be right by the description (test-api-rules.ts) and in an order that the real
 * one takes (rpc_interface.rs of its sources: what may be asked before the VM runs, and what after), and is refused in its words otherwise. Files and memory are the
 * business of a process in the jail (test-jailer.py).
 */
import { once } from 'node:events';
import { chmod, copyFile, mkdir, rm } from 'node:fs/promises';
import { createServer as createHttpServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createServer, type Server as NetServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { ApiRules } from './test-api-rules.ts';
import { FakeMachine, Refusal } from './test-machine.ts';

const jailerPath = fileURLToPath(new URL('./test-jailer.py', import.meta.url));

export interface JailerOrder {
  id: string;
  root: string;
  uid: number;
  netns: string | null;
  flags: string[];
  limits: Record<string, number>;
  args: string[];
  pid: number;
}

export interface Call {
  method: string;
  path: string;
  body: unknown;
  status: number;
}

/** Answers in place of Firecracker; undefined: it answers itself. */
export type Interference = (
  call: { method: string; path: string },
  response: ServerResponse,
  machine: FakeMachine,
) => boolean | Promise<boolean>;

export class FakeFirecracker implements AsyncDisposable {
  readonly directory: string;
  /** In the order in which they were started. */
  readonly machines: { order: JailerOrder; machine: FakeMachine; calls: Call[] }[] = [];
  interfere: Interference | undefined;
  readonly #rules = new ApiRules();
  readonly #control: NetServer;
  readonly #servers = new Set<Server | NetServer>();
  readonly #connections = new Set<Socket>();

  private constructor(directory: string) {
    this.directory = directory;
    this.#control = createServer((socket) => this.#serve(socket));
  }

  /** `firecracker` and `jailer` are in the directory, and served, from now on. */
  static async open(directory: string): Promise<FakeFirecracker> {
    await mkdir(directory, { recursive: true });
    for (const name of ['firecracker', 'jailer']) {
      await copyFile(jailerPath, join(directory, name));
      await chmod(join(directory, name), 0o755);
    }
    const fake = new FakeFirecracker(directory);
    await once(fake.#control.listen(join(directory, 'control.sock')), 'listening');
    return fake;
  }

  get last(): { order: JailerOrder; machine: FakeMachine; calls: Call[] } {
    const last = this.machines.at(-1);
    if (last === undefined) throw new Error('nothing was started');
    return last;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#connections) socket.destroy();
    for (const server of [this.#control, ...this.#servers]) server.close();
    await rm(this.directory, { recursive: true, force: true });
  }

  #serve(control: Socket): void {
    this.#connections.add(control);
    control.on('error', () => {});
    const lines = createInterface({ input: control });
    const waiters: ((line: string) => void)[] = [];
    lines.on('line', (line) => waiters.shift()?.(line));
    const next = () => new Promise<string>((resolve) => waiters.push(resolve));
    void next().then(async (line) => {
      const order = JSON.parse(line) as JailerOrder; // of our own script
      const machine = new FakeMachine(async (command) => {
        control.write(`${JSON.stringify(command)}\n`);
        const { result, error } = JSON.parse(await next()) as { result: unknown; error?: string };
        if (error !== undefined) throw new Refusal(error);
        return result;
      });
      const calls: Call[] = [];
      this.machines.push({ order, machine, calls });
      const api = createHttpServer((request, response) => void this.#answer(request, response, machine, calls));
      const guest = createServer((socket) => this.#forward(socket, machine));
      machine.onRunnable = async (path) => {
        await once(guest.listen(join(order.root, path)), 'listening');
      };
      const mine = new Set<Socket>();
      for (const server of [api, guest]) {
        this.#servers.add(server);
        server.on('connection', (socket: Socket) => {
          mine.add(socket);
          this.#connections.add(socket);
          socket.on('error', () => {});
        });
      }
      control.once('close', () => {
        for (const socket of mine) socket.destroy();
        api.close();
        guest.close();
      });
      await once(api.listen(join(order.root, order.args[order.args.indexOf('--api-sock') + 1] ?? '')), 'listening');
      control.write('go\n');
    });
  }

  async #answer(
    request: IncomingMessage,
    response: ServerResponse,
    machine: FakeMachine,
    calls: Call[],
  ): Promise<void> {
    const { method = '', url = '' } = request;
    let text = '';
    for await (const chunk of request) text += chunk;
    if ((await this.interfere?.({ method, path: url }, response, machine)) === true) return;
    const body: unknown = text === '' ? undefined : JSON.parse(text);
    const [status, answer] = await this.#outcome(machine, { method, path: url, body });
    calls.push({ method, path: url, body, status });
    response
      .writeHead(status, { 'content-type': 'application/json' })
      .end(answer === undefined ? undefined : JSON.stringify(answer));
  }

  async #outcome(
    machine: FakeMachine,
    call: { method: string; path: string; body: unknown },
  ): Promise<[number, object?]> {
    const fault = this.#rules.fault(call.method, call.path, call.body);
    if (fault !== undefined) return [400, { fault_message: fault }];
    try {
      const answer = await machine.handle(call.method, call.path, call.body);
      return answer === undefined ? [204] : [200, answer];
    } catch (error) {
      if (error instanceof Refusal) return [400, { fault_message: error.message }];
      throw error;
    }
  }

  /** The device's host end. Only one port is listened on, by a guest that echoes. */
  #forward(socket: Socket, machine: FakeMachine): void {
    socket.once('data', (chunk) => {
      const port = Number(/^CONNECT (\d+)\n$/.exec(chunk.toString())?.[1]);
      if (port !== machine.listensOn) return void socket.destroy();
      socket.write('OK 1073741824\nhello from the guest');
      socket.pipe(socket);
    });
  }
}
