/**
 * `node scripts/install-trial.mjs`: installs Fuse on a machine as the install pages say, uses it, and takes it off again. The machine is a Debian of
 * its own under QEMU, with systemd and control groups of version 2; inside, VMs run under KVM that is emulated. As root. docs/operations.md says more.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Machine } from './install-trial/machine.mjs';
import { ensureMachineImage } from './install-trial/machine-image.mjs';
import { makeProgramDisk } from './install-trial/program-disk.mjs';
import { readSteps } from './install-trial/steps.mjs';
import { SetupError } from './setup/command.mjs';
import { ensureDebianPackages, MACHINE_PACKAGES } from './setup/debian-packages.mjs';
import { withSetupLock } from './setup/lock.mjs';
import { assetsPath, homePath } from './setup/paths.mjs';
import { seconds } from './setup/progress.mjs';
import { Tasks } from './setup/tasks.mjs';
import { runScript } from './setup.mjs';

const STEP_DEADLINE_MS = 15 * 60_000;

await runScript(async (signal) => {
  if (process.getuid?.() !== 0)
    throw new SetupError('the trial needs root', { hint: 'file systems are made with what belongs to root in them' });
  const work = await mkdtemp(join(homePath, 'trial-'));
  try {
    return await tryOut(work, signal);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
});

/** @param {string} work @param {AbortSignal} signal @returns {Promise<number>} the exit code */
async function tryOut(work, signal) {
  const tasks = new Tasks(signal);
  const packages = tasks.add('Debian packages', [], (context) => ensureDebianPackages(MACHINE_PACKAGES, context));
  const image = tasks.add('machine', [packages], (context) =>
    withSetupLock(assetsPath, signal, () => ensureMachineImage(context)),
  );
  const program = tasks.add('program', [packages], async (context) => ({
    made: true,
    disk: await makeProgramDisk(work, context),
  }));
  /** @type {Machine | undefined} */
  let machine;
  tasks.add('boot', [image, program], async ({ signal }, image, { disk }) => {
    machine = await Machine.boot({ image, programDisk: disk, work, signal });
    return { made: true };
  });
  try {
    await tasks.finish();
    if (machine === undefined) throw new Error('it has not booted');
    return await walk(machine, signal);
  } finally {
    await /** @type {Machine | undefined} */ (machine)?.[Symbol.asyncDispose]();
  }
}

/** @param {Machine} machine @param {AbortSignal} signal */
async function walk(machine, signal) {
  const steps = await readSteps();
  for (const [index, { title, script }] of steps.entries()) {
    const from = performance.now();
    const { code, output } = await machine.run(script, { timeoutMs: STEP_DEADLINE_MS, signal });
    const took = seconds(performance.now() - from);
    const note = /^note: (.*)$/m.exec(output)?.[1];
    process.stdout.write(`${code === 0 ? '✓' : '✗'} ${title} (${took})${note === undefined ? '' : `: ${note}`}\n`);
    if (code === 0) continue;
    process.stdout.write(`${output.replaceAll(/^/gm, '    ')}\n`);
    process.stdout.write(`${index} passed, 1 failed (${code}), ${steps.length - index - 1} not tried\n`);
    return 1;
  }
  process.stdout.write(`${steps.length} passed, 0 failed\n`);
  return 0;
}
