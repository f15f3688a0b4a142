import { readFile } from 'node:fs/promises';
import { type Check, type Finding, ok, warn } from '../finding.ts';
import { programOutput } from '../program-output.ts';
import { isAtLeast } from '../version.ts';

const goModule = new URL('../../../../../guest/go.mod', import.meta.url);

/** Needed to build the guest agent, not to run it: never more than a warning. */
export const goCheck: Check = {
  name: 'Go',
  async run({ signal }) {
    const outputs = await Promise.all(
      (['go', '/usr/local/go/bin/go'] as const).map((program) => programOutput([program, 'version'], signal)),
    );
    const module = await readFile(goModule, 'utf8').catch(() => ''); // an installed host agent has no source beside it
    return judgeGo(outputs.join('\n'), /^go (\S+)/m.exec(module)?.[1] ?? '1.24');
  },
};

export function judgeGo(output: string, needed: string): Finding {
  const version = /go version go(\d+(?:\.\d+)*)/.exec(output)?.[1];
  const fix = `install Go ${needed} or newer: apt-get install golang-go (Debian 13, Ubuntu 25.04), or https://go.dev/dl/`;
  if (version === undefined) return warn('not found; building the guest agent needs it', fix);
  return isAtLeast(version, needed) ? ok(version) : warn(`${version} is too old to build the guest agent`, fix);
}
