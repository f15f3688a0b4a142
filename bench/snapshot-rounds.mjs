/** The measured steps of snapshots.mjs. Whatever a step starts or stores is gone when it ends. */
import { randomBytes } from 'node:crypto';
import { timed } from './local-stack.mjs';

const MIB = 1024 ** 2;
const EXPORT_DEADLINE_MS = 300_000;

/**
 * @typedef {object} Run
 * @property {Awaited<ReturnType<typeof import('./local-stack.mjs').localStack>>} stack
 * @property {number} ramMb
 * @property {number} dirtyMib
 * @property {number} forks
 * @property {number} depth
 * @property {boolean} phases
 * @property {(name: string, value: number | undefined, unit?: 'ms' | 'MiB') => void} add
 */

/** A process that holds so many random bytes and writes their sum when it is asked to. @param {number} mib */
const work = (mib) => `test ${mib} = 0 && exit 0
cat > /run/work.py <<'END'
import os, signal, zlib
held = [os.urandom(1 << 20) for _ in range(${mib})]
def answer(*_):
    total = 0
    for each in held:
        total = zlib.crc32(each, total)
    with open("/run/sum.new", "w") as file:
        file.write(str(total))
    os.rename("/run/sum.new", "/run/sum")
signal.signal(signal.SIGUSR1, answer)
open("/run/ready", "w").close()
while True:
    signal.pause()
END
python3 /run/work.py > /dev/null 2>&1 &
echo $! > /run/work.pid
until test -e /run/ready; do sleep 0.01; done`;

const askForSum = `test -e /run/work.pid || exit 0
rm -f /run/sum; kill -USR1 "$(cat /run/work.pid)"; until test -e /run/sum; do sleep 0.01; done; cat /run/sum`;

const smallChange = 'head -c 1048576 /dev/urandom > /dev/shm/change';

/** @param {Run} run */
function steps({ stack, ramMb }) {
  const { environments, snapshots } = stack.client;
  const spec = { cpus: 1, ram_mb: ramMb, storage_gb: 2 };
  /** @param {string} id */
  const command = (id) => environments.exec(id, { cmd: ['true'] });
  /** @param {string} id @param {string} script */
  const shell = async (id, script) => {
    const { exit_code, stdout, stderr } = await environments.exec(id, { shell: script, timeout_ms: 300_000 });
    if (exit_code !== 0) throw new Error(`the command in ${id} ended with ${exit_code}: ${stderr}`);
    return stdout;
  };
  return {
    environments,
    snapshots,
    spec,
    shell,
    command,
    /** @param {import('../packages/contract/dist/index.js').CreateEnvironment} [more] */
    create: (more) => environments.create({ task_id: `bench-${randomBytes(6).toString('hex')}`, spec, ...more }),
  };
}

/** A VM of its own on the host, since the API never boots cold where there is a template. @param {Run} run */
export async function measureCold({ stack, ramMb, dirtyMib }) {
  const id = `bench-${randomBytes(6).toString('hex')}`;
  const path = `${stack.hostUrl}/v1/vms/${id}`;
  /** @param {string} url @param {string} method @param {unknown} [body] */
  const call = async (url, method, body) => {
    const headers = {
      Authorization: `Bearer ${stack.hostToken}`,
      ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
    };
    const response = await fetch(url, { method, headers, body: body === undefined ? null : JSON.stringify(body) });
    if (!response.ok) throw new Error(`${method} ${url}: ${response.status} ${await response.text()}`);
    return response.json();
  };
  const exec = async (/** @type {string} */ name, /** @type {string[]} */ argv) => {
    await call(`${path}/execs/${name}`, 'PUT', { argv, timeout_ms: 300_000, max_log_bytes: 65_536 });
    while ((await call(`${path}/execs/${name}?wait_ms=60000`, 'GET')).state === 'running');
  };
  const shape = { cpus: 1, ram_mb: ramMb, storage_gb: 2 };
  try {
    const { ms } = await timed(async () => {
      await call(path, 'PUT', { image: 'base', shape, tag: 'bench', hostname: id, start: 'cold' });
      await exec('work', ['sh', '-lc', work(dirtyMib)]);
      await exec('command', ['true']);
    });
    return ms;
  } finally {
    await call(path, 'DELETE');
  }
}

/** @param {Run} run */
export async function measureRound(run) {
  const { dirtyMib, forks, add } = run;
  const { environments, snapshots, shell, command, create } = steps(run);
  /** @type {string[]} */
  const running = [];
  const source = async () => {
    const fresh = await timed(async () => {
      const environment = await create();
      running.push(environment.id);
      await command(environment.id);
      return environment;
    });
    add('create from the template -> command', fresh.ms); // how busy the machine is shows here too
    const busy = await timed(() => shell(fresh.value.id, work(dirtyMib)));
    add('the work', busy.ms);
    return fresh.value.id;
  };
  const snapshot = async (/** @type {string} */ id, /** @type {string} */ name) => {
    const { ms, value } = await timed(() => snapshots.create(id));
    add(`${name}: pause window`, value.pause_ms);
    add(`${name}: to ready`, ms);
    add(`${name}: stored`, mib(value.stored_bytes), 'MiB');
    return value;
  };
  /** @param {string} name @param {() => Promise<{id: string}>} start */
  const started = async (name, start) => {
    const { ms, value } = await timed(async () => {
      const environment = await start();
      await command(environment.id);
      return environment;
    });
    running.push(value.id);
    add(`${name} -> command`, ms);
    addPhases(run, name, (await hostVms(run)).at(-1));
    return value.id;
  };
  try {
    const id = await source();
    const hostId = (await hostVms(run)).at(-1)?.id;
    const sum = await shell(id, askForSum);
    const check = async (/** @type {string} */ copy) => {
      if ((await shell(copy, askForSum)) !== sum) throw new Error(`${copy} does not hold what its source held`);
    };

    const first = await snapshot(id, 'snapshot');
    await shell(id, smallChange);
    const next = await snapshot(id, 'next snapshot');
    await check(await started('fork of a snapshot', () => environments.fork(id, { reuse_snapshot_id: next.id })));
    await check(await started('create from a snapshot', () => create({ seed_snapshot_id: first.id })));

    const other = await source();
    await started('fork', () => environments.fork(other));

    const many = await timed(async () => {
      const made = await environments.forkMany(id, { count: forks });
      running.push(...made.environments.map((each) => each.id));
      await Promise.all(made.environments.map((each) => command(each.id)));
      return made;
    });
    add(`fork of ${forks} -> all commands`, many.ms);
    for (const each of many.value.environments) await environments.destroy(each.id);
    running.splice(-forks);

    const inPlace = await timed(async () => {
      await snapshots.restore(first.id);
      await command(id);
    });
    add('restore in place -> command', inPlace.ms);
    await check(id);

    add('pause', (await timed(() => environments.pause(id))).ms);
    const resumed = await timed(async () => {
      await environments.resume(id);
      await command(id);
    });
    add('resume -> command', resumed.ms);
    addPhases(
      run,
      'resume',
      (await hostVms(run)).find((vm) => vm.id === hostId),
    );
    await check(id);
  } finally {
    await cleanUp(run, running);
  }
}

/** A start from the first and from the last of a chain of snapshots with a small change between each two. @param {Run & {rounds: number}} run */
export async function measureChain(run) {
  const { dirtyMib, depth, rounds, add } = run;
  const { snapshots, shell, command, create } = steps(run);
  /** @type {string[]} */
  const running = [];
  /** @type {string[]} */
  const taken = [];
  try {
    const { id } = await create();
    running.push(id);
    await shell(id, work(dirtyMib));
    const sum = await shell(id, askForSum);
    for (let link = 0; link < depth; link++) {
      await shell(id, smallChange);
      const { ms, value } = await timed(() => snapshots.create(id));
      taken.push(value.id);
      if (link === 0) continue;
      add('chain: pause window', value.pause_ms);
      add('chain: to ready', ms);
      add('chain: stored', mib(value.stored_bytes), 'MiB');
    }
    for (let round = 0; round < rounds; round++) {
      for (const at of [1, depth]) {
        const { ms, value } = await timed(async () => {
          const environment = await create({ seed_snapshot_id: taken[at - 1] });
          await command(environment.id);
          return environment;
        });
        running.push(value.id);
        add(`create at depth ${at} -> command`, ms);
        if (round === 0 && (await shell(value.id, askForSum)) !== sum) throw new Error(`depth ${at} holds other bytes`);
      }
    }
  } finally {
    await cleanUp(run, running);
  }
}

/** Into the object store: a first snapshot, and the next one after a small change. Once, for it takes long. @param {Run} run */
export async function measureExport(run) {
  const { dirtyMib, add } = run;
  const { snapshots, shell, create } = steps(run);
  /** @type {string[]} */
  const running = [];
  try {
    const { id } = await create();
    running.push(id);
    await shell(id, work(dirtyMib));
    for (const name of ['first export', 'next export']) {
      const { ms, value } = await timed(async () => exportOf(run, (await snapshots.create(id, { export: true })).id));
      add(name, ms);
      add(`${name}: stored`, mib(value.exported_bytes), 'MiB');
      add(`${name}: whole size`, mib(value.size_bytes), 'MiB');
      await shell(id, smallChange);
    }
  } finally {
    await cleanUp(run, running);
  }
}

/** @param {Run} run @param {string} id */
async function exportOf({ stack }, id) {
  const deadline = Date.now() + EXPORT_DEADLINE_MS;
  for (;;) {
    const snapshot = await stack.client.snapshots.get(id);
    const status = snapshot.exports?.[0]?.status;
    if (status === 'done') return snapshot;
    if (status === 'error' || Date.now() > deadline)
      throw new Error(`the export of ${id} is ${status}: ${snapshot.exports?.[0]?.last_error}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** @param {Run} run @returns {Promise<any[]>} the host's VMs, the newest last */
async function hostVms({ stack }) {
  const headers = { Authorization: `Bearer ${stack.hostToken}` };
  const { vms } = await (await fetch(`${stack.hostUrl}/v1/vms`, { headers })).json();
  return vms.toSorted((/** @type {any} */ one, /** @type {any} */ other) =>
    one.created_at < other.created_at ? -1 : 1,
  );
}

/** @param {Run} run @param {string} name @param {any} vm */
function addPhases({ phases, add }, name, vm) {
  if (!phases) return;
  for (const [phase, ms] of Object.entries(vm?.timings ?? {})) add(`  ${name}: ${phase.replace('_ms', '')}`, ms);
}

/** Snapshots that forks took, too: the stack is ours alone. @param {Run} run @param {string[]} running */
async function cleanUp({ stack }, running) {
  for (const id of running) await stack.client.environments.destroy(id);
  for (const { id } of await stack.client.snapshots.list()) await stack.client.snapshots.delete(id, { force: true });
}

/** @param {number | undefined} bytes */
const mib = (bytes) => (bytes === undefined ? undefined : bytes / MIB);
