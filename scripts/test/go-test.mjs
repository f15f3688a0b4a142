/** Counts the events of `go test -json` (see `go doc test2json`) and shows what a person wants to see of them. */
import { noTests } from './counts.mjs';

/** @typedef {{Action: string, Package?: string, Test?: string, Output?: string, Elapsed?: number}} GoTestEvent */

/** @param {(line: string) => void} print */
export function goTestCounter(print) {
  const counts = noTests();
  /** Output of tests that have not ended. @type {Map<string, string[]>} */
  const outputs = new Map();

  /** A package also fails when it does not compile, or its process dies or takes too long: then a test that did not end tells why. */
  const showUnended = (/** @type {string} */ of, /** @type {string[]} */ said) => {
    for (const [name, lines] of outputs) {
      if (!name.startsWith(`${of} > `)) continue;
      print(`${name} did not end:\n${lines.join('').trimEnd()}`);
      outputs.delete(name);
    }
    print(said.join('').trimEnd());
  };

  return {
    /** @param {string} line */
    onLine(line) {
      const event = parse(line);
      if (event === undefined) return print(line);
      const name = [event.Package, event.Test].filter(Boolean).join(' > ');
      if (event.Action === 'output') outputs.set(name, [...(outputs.get(name) ?? []), event.Output ?? '']);
      if (event.Action !== 'pass' && event.Action !== 'fail' && event.Action !== 'skip') return;
      const output = outputs.get(name) ?? [];
      outputs.delete(name);
      if (event.Test === undefined) {
        print(`${event.Action === 'fail' ? 'FAIL' : 'ok  '} ${event.Package} ${event.Elapsed ?? 0} s`);
        if (event.Action === 'fail') showUnended(event.Package ?? '', output);
      } else if (event.Action === 'pass') counts.passed++;
      else if (event.Action === 'fail') {
        counts.failed++;
        print(output.join('').trimEnd());
      } else counts.skipped.push({ name, reason: skipReason(output) });
    },
    /** @param {number} exitCode */
    end: (exitCode) => (exitCode !== 0 && counts.failed === 0 ? { ...counts, failed: 1 } : counts),
  };
}

/** @param {string} line @returns {GoTestEvent | undefined} */
function parse(line) {
  try {
    return JSON.parse(line);
  } catch {
    return undefined; // what the compiler says is no JSON
  }
}

/** @param {string[]} output */
function skipReason(output) {
  const said = output.map((line) => /^\s+\S+\.go:\d+: (.*)/.exec(line)?.[1]).find((reason) => reason !== undefined);
  return said ?? 'no reason given';
}
