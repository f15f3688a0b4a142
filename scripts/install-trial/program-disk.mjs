/**
 * What the trial machine finds at /opt: in `fuse` a clean clone of the last commit, built as the install pages say; beside it what it could not fetch
 * without a network (what set-up makes, an S3 server, Node.js).
 */
import { cp, mkdir, readFile, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { run, tryRun } from '../setup/command.mjs';
import { requireGo } from '../setup/go.mjs';
import { manifestPath, projectPath } from '../setup/paths.mjs';

const DISK_SIZE = '6G';

/** @param {string} work an empty directory of ours @param {import('../setup/tasks.mjs').StepContext} context @returns {Promise<string>} the disk's path */
export async function makeProgramDisk(work, { signal, onLine }) {
  const opt = join(work, 'opt');
  const project = join(opt, 'fuse');
  const home = join(opt, 'made');
  await mkdir(home, { recursive: true });
  const at = { cwd: project, signal, onLine };
  const env = { FUSE_HOME: home };
  await run(['git', 'clone', '--quiet', '--no-hardlinks', projectPath, project], { signal, onLine });
  await run(['npm', 'ci', '--no-audit', '--no-fund'], at);
  await run(['npm', 'run', 'build'], at);
  await bringKnown(home);
  await run(['npm', 'run', 'setup'], { ...at, env });
  await rm(join(home, 'host'), { recursive: true }); // the template is for this machine's accelerator
  const s3 = `import { ensureVersitygw } from '@fuse/testing'; console.log(await ensureVersitygw());`;
  const versitygw = await run([process.execPath, '--input-type=module', '-e', s3], at);
  await mkdir(join(opt, 'tools'));
  await cp(versitygw, join(opt, 'tools', 'versitygw'));
  await bringNode(join(opt, 'node'), signal);
  await bringGo(join(opt, 'go'), signal);
  const disk = join(work, 'program.img');
  await run(['mke2fs', '-q', '-t', 'ext4', '-d', opt, disk, DISK_SIZE], { signal, onLine });
  return disk;
}

/** What takes long to make and is named after what it is made of: set-up takes it, or makes another one. @param {string} home */
async function bringKnown(home) {
  const manifest = await readFile(manifestPath, 'utf8').catch(() => undefined);
  if (manifest === undefined) return;
  const { kernel, images } = JSON.parse(manifest);
  await mkdir(join(home, 'assets'), { recursive: true });
  for (const { path } of [kernel, ...images]) await link(dirname(path), join(home, 'assets'));
}

/** Hard links, or copies that stay sparse. @param {string} from @param {string} into */
async function link(from, into) {
  if ((await tryRun(['cp', '-al', from, into])) === undefined) await run(['cp', '-a', '--sparse=always', from, into]);
}

/** @param {string} into @param {AbortSignal} signal */
async function bringNode(into, signal) {
  await mkdir(into);
  await cp(process.execPath, join(into, 'node'));
  const modules = await run(['npm', 'root', '--global'], { signal });
  await cp(join(modules, 'npm'), join(into, 'npm'), { recursive: true, verbatimSymlinks: true });
}

/** As much of it as says its version: set-up asks, and builds nothing anew. @param {string} into @param {AbortSignal} signal */
async function bringGo(into, signal) {
  const go = await requireGo();
  const root = await run([go.path, 'env', 'GOROOT'], { signal });
  await mkdir(join(into, 'pkg', 'tool'), { recursive: true });
  for (const name of ['bin/go', 'VERSION', 'go.env']) await cp(join(root, name), join(into, name));
}
