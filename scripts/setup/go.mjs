/** The Go toolchain that builds what is written in Go: found, and new enough for every module. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { SetupError, tryRun } from './command.mjs';
import { projectPath } from './paths.mjs';

/** Folders that are a Go module each. @returns {Promise<string[]>} */
export async function goModules() {
  const entries = await readdir(projectPath, { withFileTypes: true });
  const directories = entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);
  const files = await Promise.all(directories.map((name) => readdir(join(projectPath, name))));
  return directories.filter((_, index) => files[index]?.includes('go.mod')).sort();
}

/** @returns {Promise<string>} such as "1.24.0" */
export async function neededGoVersion() {
  let newest = '0';
  for (const module of await goModules()) {
    const version = /^go (\d+(?:\.\d+)*)/m.exec(await readFile(join(projectPath, module, 'go.mod'), 'utf8'))?.[1];
    if (version === undefined) throw new Error(`${module}/go.mod names no Go version`);
    if (compareVersions(version, newest) > 0) newest = version;
  }
  return newest;
}

/** The newest `go` among PATH, the Go site's usual place and Debian's versioned packages. @returns {Promise<{path: string, version: string} | undefined>} */
export async function findGo() {
  const debian = (await readdir('/usr/lib').catch(() => [])).filter((name) => /^go-1\.\d+$/.test(name));
  const candidates = ['go', '/usr/local/go/bin/go', ...debian.map((name) => `/usr/lib/${name}/bin/go`)];
  /** @type {{path: string, version: string} | undefined} */
  let best;
  for (const path of candidates) {
    const version = /go version go(\d+(?:\.\d+)*)/.exec((await tryRun([path, 'version'])) ?? '')?.[1];
    if (version !== undefined && (best === undefined || compareVersions(version, best.version) > 0))
      best = { path, version };
  }
  return best;
}

/** Debian's package of Go, when there is no Go that is new enough and the package is. Refuses when neither will do. @returns {Promise<string[]>} */
export async function goPackageToInstall() {
  const needed = await neededGoVersion();
  const go = await findGo();
  if (go !== undefined && compareVersions(go.version, needed) >= 0) return [];
  const policy = (await tryRun(['apt-cache', 'policy', 'golang-go'])) ?? '';
  const candidate = /Candidate: (?:\d+:)?(\d+(?:\.\d+)*)/.exec(policy)?.[1];
  if (candidate !== undefined && compareVersions(candidate, needed) >= 0) return ['golang-go'];
  throw unsuitable(go, needed);
}

/** @returns {Promise<{path: string, version: string}>} */
export async function requireGo() {
  const needed = await neededGoVersion();
  const go = await findGo();
  if (go !== undefined && compareVersions(go.version, needed) >= 0) return go;
  throw unsuitable(go, needed);
}

/** @param {{version: string} | undefined} go @param {string} needed */
function unsuitable(go, needed) {
  const found = go === undefined ? 'Go is not installed' : `Go ${go.version} is too old`;
  return new SetupError(`${found}: Fuse needs Go ${needed} or newer`, {
    hint: [
      'get it in one of these ways, then start again:',
      '  Debian 13, Ubuntu 25.04 or newer:  apt-get update && apt-get install golang-go',
      '  Debian 12:                         apt-get install -t bookworm-backports golang-go, with backports enabled',
      '  any Linux:                         the archive at https://go.dev/dl/, unpacked as /usr/local/go',
    ].join('\n'),
  });
}

/** @param {string} a @param {string} b */
export function compareVersions(a, b) {
  const left = a.split('.').map(Number);
  const right = b.split('.').map(Number);
  for (let index = 0; index < Math.max(left.length, right.length); index++) {
    const difference = (left[index] ?? 0) - (right[index] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}
