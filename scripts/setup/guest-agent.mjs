/** The guest agent: one static binary, rebuilt when its source or the toolchain changes. */
import { chmod } from 'node:fs/promises';
import { join } from 'node:path';
import { ensureAsset } from './asset.mjs';
import { run } from './command.mjs';
import { digestFile, digestTree } from './digest.mjs';
import { requireGo } from './go.mjs';
import { projectPath } from './paths.mjs';

const FLAGS = ['-trimpath', '-buildvcs=false', '-ldflags=-s -w'];

/** @param {import('./tasks.mjs').StepContext} context */
export async function ensureGuestAgent({ signal, onLine }) {
  const go = await requireGo();
  const source = await digestTree(
    join(projectPath, 'guest'),
    (path) => !path.startsWith('bin/') && (/(?<!_test)\.go$/.test(path) || path === 'go.mod' || path === 'go.sum'),
  );
  return ensureAsset('guest-agent', { source, go: go.version, FLAGS }, async (directory) => {
    const output = join(directory, 'fused');
    await run([go.path, 'build', '-v', ...FLAGS, '-o', output, './cmd/fused'], {
      cwd: join(projectPath, 'guest'),
      env: { CGO_ENABLED: '0', GOOS: 'linux', GOARCH: 'amd64', GOFLAGS: '' },
      signal,
      onLine,
    });
    await chmod(output, 0o755);
    return { sha256: await digestFile(output) };
  });
}
