/** Programs written in Go: static binaries, each rebuilt when its source or the toolchain changes. */
import { chmod } from 'node:fs/promises';
import { join } from 'node:path';
import { ensureAsset } from './asset.mjs';
import { run } from './command.mjs';
import { digestFile, digestTree } from './digest.mjs';
import { requireGo } from './go.mjs';
import { projectPath } from './paths.mjs';

const FLAGS = ['-trimpath', '-buildvcs=false', '-ldflags=-s -w'];

/** By the name of the asset: the module's folder, and which of its commands. */
export const GO_PROGRAMS = /** @type {const} */ ({
  'guest-agent': { module: 'guest', program: 'fused' },
  jailer: { module: 'jailer', program: 'fuse-jailer' },
  gateway: { module: 'gateway', program: 'fuse-gateway' },
});

/** @param {keyof typeof GO_PROGRAMS} name @param {import('./tasks.mjs').StepContext} context */
export async function ensureGoProgram(name, { signal, onLine }) {
  const { module, program } = GO_PROGRAMS[name];
  const go = await requireGo();
  const source = await digestTree(
    join(projectPath, module),
    (path) => !path.startsWith('bin/') && (/(?<!_test)\.go$/.test(path) || path === 'go.mod' || path === 'go.sum'),
  );
  return ensureAsset(name, { source, go: go.version, FLAGS }, async (directory) => {
    const output = join(directory, program);
    await run([go.path, 'build', '-v', ...FLAGS, '-o', output, `./cmd/${program}`], {
      cwd: join(projectPath, module),
      env: { CGO_ENABLED: '0', GOOS: 'linux', GOARCH: 'amd64', GOFLAGS: '' },
      signal,
      onLine,
    });
    await chmod(output, 0o755);
    return { sha256: await digestFile(output) };
  });
}
