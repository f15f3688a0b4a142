/**
 * `npm run setup`: everything that a fresh clone needs, each step skipped when already done. It runs before there is any npm package,
 * so it is plain Node.js.
 */
import { pathToFileURL } from 'node:url';
import { removeHalfMade } from './setup/asset.mjs';
import { SetupError } from './setup/command.mjs';
import { ensureDebianPackages, MACHINE_PACKAGES, withMissingPackages } from './setup/debian-packages.mjs';
import { goPackageToInstall } from './setup/go.mjs';
import { ensureGoProgram } from './setup/go-program.mjs';
import { ensureImage } from './setup/image.mjs';
import { ensureInitramfs } from './setup/initramfs.mjs';
import { ensureKernel } from './setup/kernel.mjs';
import { withSetupLock } from './setup/lock.mjs';
import { writeManifest } from './setup/manifest.mjs';
import { ensureNpmPackages } from './setup/npm-packages.mjs';
import { assetsPath, homePath } from './setup/paths.mjs';
import { seconds } from './setup/progress.mjs';
import { Tasks } from './setup/tasks.mjs';
import { ensureTemplate } from './setup/template.mjs';
import { buildTypeScript, PROGRAMS } from './setup/typescript.mjs';

/**
 * @param {AbortSignal} signal
 * @param {{packages?: string[], projects?: string[], addTasks?: (tasks: Tasks, built: Promise<unknown>) => void}} [more]
 *   Debian packages, TypeScript projects and steps beyond those that running needs; `built` is the step that compiles
 * @returns {Promise<{changed: boolean}>} whether a stack that runs already was started with something else
 */
export async function setUp(signal, { packages = [], projects = PROGRAMS, addTasks } = {}) {
  const startedAt = performance.now();
  process.stderr.write(`Setting up (${homePath})\n`);
  const changed = await withSetupLock(assetsPath, signal, async () => {
    await removeHalfMade();
    const tasks = new Tasks(signal);
    const own = [...MACHINE_PACKAGES, ...packages];
    const go = await goPackageToInstall().catch(async (error) => {
      throw await withMissingPackages(error, own);
    });
    const debian = tasks.add('Debian packages', [], (context) => ensureDebianPackages([...own, ...go], context));
    const npm = tasks.add('npm packages', [], ensureNpmPackages);
    const built = tasks.add('TypeScript', [npm], (context) => buildTypeScript(projects, context));
    const goThere = go.length === 0 ? Promise.resolve() : debian;
    const agent = tasks.add('guest agent', [goThere], (context) => ensureGoProgram('guest-agent', context));
    const jailer = tasks.add('jailer', [goThere], (context) => ensureGoProgram('jailer', context));
    const gateway = tasks.add('gateway', [goThere], (context) => ensureGoProgram('gateway', context));
    const kernel = tasks.add('kernel', [debian], ensureKernel);
    const base = tasks.add('base image', [debian], (context) => ensureImage('base', context));
    const initramfs = tasks.add('initramfs', [kernel, agent], ensureInitramfs);
    const programs = Promise.all([jailer, gateway]).then(([jailer, gateway]) => ({ jailer, gateway }));
    const manifest = tasks.add('manifest', [kernel, initramfs, programs, base], writeManifest);
    tasks.add('first templates', [manifest, built], ensureTemplate);
    addTasks?.(tasks, built);
    await tasks.finish();
    return (await built).made || (await manifest).made;
  });
  process.stderr.write(`Set up in ${seconds(performance.now() - startedAt)}\n\n`);
  return { changed };
}

/** Runs `main` until it ends or a signal asks to stop; prints what the user can do about a failure. @param {(signal: AbortSignal) => Promise<number>} main */
export async function runScript(main) {
  const abort = new AbortController();
  for (const name of /** @type {const} */ (['SIGINT', 'SIGTERM', 'SIGHUP']))
    process.once(name, () => abort.abort(new SetupError(`stopped by ${name}`)));
  try {
    process.exitCode = await main(abort.signal);
  } catch (error) {
    if (!(error instanceof SetupError)) throw error;
    process.stderr.write(`\nerror: ${error.message}\n${error.hint === undefined ? '' : `hint: ${error.hint}\n`}`);
    process.exitCode = 1;
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href)
  await runScript(async (signal) => {
    await setUp(signal);
    return 0;
  });
