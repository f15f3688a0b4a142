import { type Check, fail, ok } from '../finding.ts';
import { isAtLeast } from '../version.ts';

const NEEDED = '20.11';

export const nodeCheck: Check = {
  name: 'Node.js',
  async run() {
    const version = process.versions.node;
    return isAtLeast(version, NEEDED)
      ? ok(version)
      : fail(`${version} is too old`, `install Node.js ${NEEDED} or newer`);
  },
};
