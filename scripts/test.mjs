/**
 * `npm test`: sets everything up, then checks the source and runs every test, real VMs included.
 * `npm test -- --only <pattern>` runs the Vitest files whose path holds the pattern. The last line is always `N passed, N failed`.
 */
import { readdir, readFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { run, SetupError } from './setup/command.mjs';
import { projectPath } from './setup/paths.mjs';
import { seconds } from './setup/progress.mjs';
import { EVERYTHING } from './setup/typescript.mjs';
import { runScript, setUp } from './setup.mjs';
import { closingLine, sum } from './test/counts.mjs';
import { allSuites, suitesMatching } from './test/suites.mjs';

await runScript(async (signal) => {
  const pattern = onlyPattern(process.argv.slice(2));
  await setUp(signal, {
    packages: [
      ...['cpio', 'curl', 'lz4', 'tmux'],
      ...((await hasPostgres()) ? [] : ['postgresql']),
      ...((await isDebian()) ? ['chromium'] : []),
    ],
    projects: EVERYTHING,
    addTasks: (tasks, built) => {
      tasks.add('test S3 server', [built], async ({ signal, onLine }) => {
        const output = await run([process.execPath, 'packages/testing/bin/prepare.mjs'], {
          cwd: projectPath,
          signal,
          onLine,
        });
        return { made: !output.includes('already built') };
      });
    },
  });
  const results = [];
  for (const suite of pattern === undefined ? await allSuites() : suitesMatching(pattern)) {
    const startedAt = performance.now();
    process.stdout.write(`── ${suite.name}\n`);
    const counts = await suite.run(signal);
    results.push(counts);
    const verdict = counts.failed > 0 ? 'FAILED' : 'ok';
    process.stdout.write(`── ${suite.name}: ${verdict}, ${seconds(performance.now() - startedAt)}\n\n`);
  }
  const total = sum(results);
  if (total.skipped.length > 0) process.stdout.write('Skipped:\n');
  for (const { name, reason } of total.skipped) process.stdout.write(`  ${name}: ${reason}\n`);
  process.stdout.write(`${closingLine(total)}\n`);
  return total.failed > 0 || total.passed === 0 ? 1 : 0;
});

/** @param {string[]} args */
function onlyPattern([option, pattern, ...rest]) {
  if (option === undefined) return undefined;
  if (option === '--only' && pattern !== undefined && rest.length === 0) return pattern;
  throw new SetupError('unknown arguments', { hint: "npm test, or npm test -- --only <part of a test file's path>" });
}

/** Elsewhere that name is no browser; the browser's tests say then that they are skipped. */
async function isDebian() {
  return /^ID=debian$/m.test(await readFile('/etc/os-release', 'utf8').catch(() => ''));
}

/** Where packages/testing looks too. */
async function hasPostgres() {
  const versions = await readdir('/usr/lib/postgresql').catch(() => []);
  const directories = [
    ...versions.map((version) => join('/usr/lib/postgresql', version, 'bin')),
    ...(process.env.PATH ?? '').split(delimiter),
  ];
  const found = await Promise.all(directories.map((each) => readdir(each).catch(() => /** @type {string[]} */ ([]))));
  return found.some((names) => names.includes('initdb') && names.includes('postgres'));
}
