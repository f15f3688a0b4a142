/** What `npm test` runs, in order: checks of the source first, then Go, then unit tests, then tests that boot VMs. */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findGo, goModules } from '../setup/go.mjs';
import { projectPath } from '../setup/paths.mjs';
import { show } from '../setup/show.mjs';
import { noTests } from './counts.mjs';
import { goTestCounter } from './go-test.mjs';

/**
 * @typedef {import('./counts.mjs').Counts} Counts
 * @typedef {{name: string, run: (signal: AbortSignal) => Promise<Counts>}} Suite
 */

const CHECK_DEADLINE_MS = 5 * 60_000;
const UNIT_DEADLINE_MS = 30 * 60_000;
const VM_DEADLINE_MS = 90 * 60_000;
/** Most of them wait more than they compute: on two cores Vitest would run one file at a time. */
const UNIT_ARGUMENTS = ['--maxWorkers', '2'];

/** A check is no test: it counts when it fails. @param {string} name @param {string[]} argv @returns {Suite} */
const check = (name, argv) => ({
  name,
  async run(signal) {
    const code = await show(argv, { cwd: projectPath, signal, deadlineMs: CHECK_DEADLINE_MS });
    return { ...noTests(), failed: code === 0 ? 0 : 1 };
  },
});

/** @returns {Promise<Suite[]>} */
export async function allSuites() {
  const go = (await findGo())?.path ?? 'go';
  const modules = await goModules();
  const bin = (/** @type {string} */ name) => join('node_modules/.bin', name);
  return [
    check('biome', [bin('biome'), 'check', '--error-on-warnings', '.']),
    check('types of the scripts', [bin('tsc'), '-p', 'scripts']),
    check('dependency-cruiser', [bin('depcruise'), '--config', '.dependency-cruiser.cjs', 'apps', 'packages']),
    check('knip', [bin('knip'), '--no-config-hints']),
    ...modules.map((module) => check(`go vet ${module}`, [go, '-C', module, 'vet', './...'])),
    ...modules.map((module) => goTest(go, module)),
    vitest('unit', UNIT_DEADLINE_MS, UNIT_ARGUMENTS),
    vitest('vm', VM_DEADLINE_MS, []),
  ];
}

/** Vitest alone, on the files whose path holds the pattern. @param {string} pattern @returns {Suite[]} */
export const suitesMatching = (pattern) => [
  vitest('unit', UNIT_DEADLINE_MS, [pattern, '--passWithNoTests']),
  vitest('vm', VM_DEADLINE_MS, [pattern, '--passWithNoTests']),
];

/** @param {string} go @param {string} module @returns {Suite} */
function goTest(go, module) {
  return {
    name: `go test ${module}`,
    async run(signal) {
      const counter = goTestCounter((line) => process.stdout.write(`${line}\n`));
      const argv = [go, '-C', module, 'test', '-timeout', '5m', '-json', './...'];
      const code = await show(argv, { cwd: projectPath, signal, deadlineMs: UNIT_DEADLINE_MS, onLine: counter.onLine });
      return counter.end(code);
    },
  };
}

/** @param {string} project @param {number} deadlineMs @param {string[]} args @returns {Suite} */
function vitest(project, deadlineMs, args) {
  return {
    name: `vitest, ${project} tests`,
    async run(signal) {
      const directory = await mkdtemp(join(tmpdir(), 'fuse-test-'));
      const countsPath = join(directory, 'counts.json');
      try {
        const code = await show(
          [
            ...['node_modules/.bin/vitest', 'run', '--project', project],
            ...['--reporter', 'default', '--reporter', './scripts/test/vitest-counts.mjs'],
            ...args,
          ],
          { cwd: projectPath, env: { FUSE_TEST_COUNTS: countsPath }, signal, deadlineMs },
        );
        /** @type {Counts} */
        const counts = await readFile(countsPath, 'utf8').then(JSON.parse, () => ({ ...noTests(), failed: 1 }));
        return code !== 0 && counts.failed === 0 ? { ...counts, failed: 1 } : counts;
      } finally {
        await rm(directory, { recursive: true, force: true });
      }
    },
  };
}
