/** The trial machine under QEMU, emulated: its disks are never written to, and it reaches nothing but what is inside. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { SetupError } from '../setup/command.mjs';

const MEMORY = '7G';
const CPUS = 2;
const BOOT_DEADLINE_MS = 10 * 60_000;
const CONSOLE_TAIL_BYTES = 4_000;
/** What is inside ends a script that takes too long; whoever does not even do that is gone. */
const ANSWER_GRACE_MS = 60_000;

/** @typedef {{code: number | string, output: string}} Answer */

export class Machine {
  #child;
  /** @type {import('node:net').Socket | undefined} */
  #socket;
  #console;
  #nextId = 1;
  /** @type {Map<unknown, (answer: Answer) => void>} */
  #waiting = new Map();
  #exited;

  /**
   * Resolves when it has booted as far as multi-user.target.
   * @param {{image: import('./machine-image.mjs').MachineImage, programDisk: string, work: string, signal: AbortSignal}} options  `work` takes
   *   its socket, its console and what it writes
   */
  static async boot({ image, programDisk, work, signal }) {
    const socketPath = join(work, 'inside.sock');
    const consolePath = join(work, 'console.log');
    const disk = (/** @type {string} */ path) => `file=${path},format=raw,if=virtio,snapshot=on,cache=unsafe`;
    const child = spawn(
      'setpriv', // it ends with us, however we end
      [
        ...[
          '--pdeathsig',
          'KILL',
          'nice',
          '-n',
          '15',
          'qemu-system-x86_64',
          '-name',
          'fuse-install-trial',
          '-nodefaults',
          '-no-reboot',
        ],
        // With SVM, which it emulates: VMs inside run under KVM. Emulated twice, a guest does not answer within the host agent's deadlines.
        ...['-display', 'none', '-M', 'q35', '-accel', 'tcg,thread=multi,tb-size=1024', '-cpu', 'max'],
        ...['-smp', String(CPUS), '-m', MEMORY, '-kernel', image.kernel, '-initrd', image.initrd],
        ...['-append', 'root=/dev/vda rw console=ttyS0 quiet systemd.show_status=0', '-serial', `file:${consolePath}`],
        ...['-drive', disk(image.disk), '-drive', disk(programDisk)],
        ...['-object', 'rng-random,id=rng,filename=/dev/urandom', '-device', 'virtio-rng-pci,rng=rng'],
        ...['-netdev', 'user,id=net,restrict=on', '-device', 'virtio-net-pci,netdev=net'],
        ...['-device', 'virtio-serial-pci', '-chardev', `socket,id=inside,path=${socketPath},server=on,wait=off`],
        ...['-device', 'virtserialport,chardev=inside,name=trial'],
        // `stop` and `cont` there have it stand still without noticing.
        ...['-monitor', `unix:${join(work, 'monitor.sock')},server=on,wait=off`],
      ],
      { env: { ...process.env, TMPDIR: work }, stdio: ['ignore', 'ignore', 'inherit'], detached: true },
    );
    const machine = new Machine(child, consolePath);
    try {
      await machine.#reach(socketPath, AbortSignal.any([signal, AbortSignal.timeout(BOOT_DEADLINE_MS)]));
    } catch (cause) {
      await machine[Symbol.asyncDispose]();
      signal.throwIfAborted();
      throw new SetupError(`the trial machine did not boot\n${await machine.consoleTail()}`, { cause });
    }
    return machine;
  }

  /** @param {import('node:child_process').ChildProcess} child @param {string} consolePath */
  constructor(child, consolePath) {
    this.#child = child;
    this.#console = consolePath;
    this.#exited = once(child, 'exit');
    this.#exited.catch(() => {});
  }

  get pid() {
    return this.#child.pid;
  }

  async consoleTail() {
    return (await readFile(this.#console, 'utf8').catch(() => '')).slice(-CONSOLE_TAIL_BYTES);
  }

  /** @param {string} path @param {AbortSignal} signal */
  async #reach(path, signal) {
    while (this.#socket === undefined) {
      signal.throwIfAborted();
      if (this.#child.exitCode !== null) throw new Error('QEMU has ended');
      const socket = connect(path);
      try {
        await once(socket, 'connect', { signal });
        this.#socket = socket;
      } catch {
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    }
    const ready = new Promise((resolve) => this.#waiting.set(undefined, () => resolve(undefined)));
    createInterface({ input: this.#socket }).on('line', (line) => {
      const { id, ...answer } = JSON.parse(line);
      this.#waiting.get(id)?.(answer);
      this.#waiting.delete(id);
    });
    this.#socket.on('error', () => {});
    const gone = this.#exited.then(() => Promise.reject(new Error('QEMU has ended')));
    const aborted = once(signal, 'abort').then(() => Promise.reject(signal.reason));
    await Promise.race([ready, gone, aborted]);
  }

  /** Runs a shell script as root inside. @param {string} script @param {{timeoutMs: number, signal: AbortSignal}} options @returns {Promise<Answer>} */
  async run(script, { timeoutMs, signal }) {
    const id = this.#nextId++;
    /** @type {Promise<Answer>} */
    const answer = new Promise((resolve) => this.#waiting.set(id, resolve));
    this.#socket?.write(`${JSON.stringify({ id, script, timeoutMs })}\n`);
    const deadline = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs + ANSWER_GRACE_MS)]);
    const late = once(deadline, 'abort').then(() => Promise.reject(deadline.reason));
    const gone = this.#exited.then(() => Promise.reject(new SetupError('the trial machine has ended')));
    return Promise.race([answer, late, gone]);
  }

  async [Symbol.asyncDispose]() {
    this.#socket?.destroy();
    if (this.#child.exitCode === null && this.#child.pid !== undefined) process.kill(-this.#child.pid, 'SIGKILL');
    await this.#exited.catch(() => {});
  }
}
