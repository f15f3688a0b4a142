/** Vitest reporter: writes what was run to the file that FUSE_TEST_COUNTS names. What broke outside of a test counts as a failure too. */
import { writeFileSync } from 'node:fs';

export default class VitestCounts {
  /**
   * @param {ReadonlyArray<import('vitest/node').TestModule>} modules
   * @param {ReadonlyArray<unknown>} unhandledErrors
   */
  onTestRunEnd(modules, unhandledErrors) {
    const counts = {
      passed: 0,
      failed: unhandledErrors.length,
      skipped: /** @type {{name: string, reason: string}[]} */ ([]),
    };
    for (const module of modules) {
      counts.failed += module.errors().length;
      for (const suite of module.children.allSuites()) counts.failed += suite.errors().length;
      for (const test of module.children.allTests()) {
        const result = test.result();
        if (result.state === 'passed') counts.passed++;
        else if (result.state === 'skipped')
          counts.skipped.push({
            name: `${module.relativeModuleId} > ${test.fullName}`,
            reason: result.note ?? (brokenSuite(test) ? 'what comes before it failed' : 'no reason given'),
          });
        else counts.failed++;
      }
    }
    writeFileSync(String(process.env.FUSE_TEST_COUNTS), JSON.stringify(counts));
  }
}

/** Whether the set-up of a suite around this test failed. @param {import('vitest/node').TestCase} test */
function brokenSuite(test) {
  for (let at = test.parent; at.type === 'suite'; at = at.parent) if (at.errors().length > 0) return true;
  return test.module.errors().length > 0;
}
