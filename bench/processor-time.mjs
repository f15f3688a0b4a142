/** Processor time, which other work on the machine changes less than how long something takes. */
import { readdirSync, readFileSync } from 'node:fs';

/** Of its threads that live: those that matter here do. @param {number} pid */
function processorMs(pid) {
  let ns = 0;
  for (const thread of readdirSync(`/proc/${pid}/task`))
    try {
      ns += Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')[0]);
    } catch {} // it has ended
  return ns / 1e6;
}

/** The emulator of a VM whose directory is below this one: each names its own on its command line. @param {string} directory */
export function emulatorBelow(directory) {
  for (const name of readdirSync('/proc').filter((each) => /^\d+$/.test(each)))
    try {
      if (readFileSync(`/proc/${name}/cmdline`, 'utf8').includes(`\0guest=${directory}/`)) return Number(name);
    } catch {} // it has ended
  throw new Error(`no emulator below ${directory}`);
}

/** Sums up what processes spend while something runs. */
export class ProcessorTime {
  #pids;
  #spentMs;
  #from = [0];

  /** @param {Record<string, number>} pids by name */
  constructor(pids) {
    this.#pids = pids;
    this.#spentMs = Object.values(pids).map(() => 0);
  }

  /** @template T @param {() => Promise<T>} work @returns {Promise<T>} */
  async of(work) {
    this.#from = Object.values(this.#pids).map(processorMs);
    const value = await work();
    Object.values(this.#pids).forEach((pid, at) => {
      this.#spentMs[at] += processorMs(pid) - (this.#from[at] ?? 0);
    });
    return value;
  }

  /** @param {number} units @param {string} unit */
  per(units, unit) {
    const parts = Object.keys(this.#pids).map((name, at) => `${name} ${((this.#spentMs[at] ?? 0) / units).toFixed(2)}`);
    const sum = this.#spentMs.reduce((one, other) => one + other, 0) / units;
    return `${parts.join(' + ')} = ${sum.toFixed(2)} ms of processor time per ${unit}`;
  }
}
