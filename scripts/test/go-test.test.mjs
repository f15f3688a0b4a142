import { describe, expect, it } from 'vitest';
import { goTestCounter } from './go-test.mjs';

/** @param {object[]} events @param {number} exitCode */
function counted(events, exitCode) {
  /** @type {string[]} */
  const printed = [];
  const counter = goTestCounter((line) => printed.push(line));
  for (const event of events) counter.onLine(typeof event === 'string' ? event : JSON.stringify(event));
  return { counts: counter.end(exitCode), printed: printed.join('\n') };
}
const Package = 'fuse/guest/x';

describe('counting Go tests', () => {
  it('counts tests and not packages, shows what a failed one said, and why one was skipped', () => {
    const { counts, printed } = counted(
      [
        { Action: 'output', Package, Test: 'TestA', Output: 'quiet\n' },
        { Action: 'pass', Package, Test: 'TestA' },
        { Action: 'output', Package, Test: 'TestB', Output: 'b_test.go:3: wrong\n' },
        { Action: 'fail', Package, Test: 'TestB' },
        { Action: 'output', Package, Test: 'TestC', Output: '    c_test.go:9: needs cgroup v2\n' },
        { Action: 'skip', Package, Test: 'TestC' },
        { Action: 'fail', Package, Elapsed: 1.5 },
      ],
      1,
    );
    expect(counts).toEqual({
      passed: 1,
      failed: 1,
      skipped: [{ name: `${Package} > TestC`, reason: 'needs cgroup v2' }],
    });
    expect(printed).toContain('b_test.go:3: wrong');
    expect(printed).not.toContain('quiet');
  });

  it('shows what a test said that did not end', () => {
    const { counts, printed } = counted(
      [
        { Action: 'output', Package, Test: 'TestHangs', Output: 'goroutine 1 [select]\n' },
        { Action: 'fail', Package, Elapsed: 300 },
      ],
      1,
    );
    expect(counts.failed).toBe(1);
    expect(printed).toContain('TestHangs did not end:\ngoroutine 1 [select]');
  });

  it('counts a build that fails as a failure', () => {
    const { counts, printed } = counted([/** @type {any} */ ('x.go:1: syntax error'), { Action: 'fail', Package }], 1);
    expect(counts.failed).toBe(1);
    expect(printed).toContain('syntax error');
  });
});
