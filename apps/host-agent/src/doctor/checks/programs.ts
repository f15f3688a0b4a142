import { type Check, type Finding, fail, ok, warn } from '../finding.ts';
import { programOutput } from '../program-output.ts';

interface Program {
  name: string;
  argv: readonly [string, ...string[]];
  package: string;
  /** Otherwise for building images only. */
  everyVm: boolean;
}

const programs: readonly Program[] = [
  { name: 'mkfs.ext4', argv: ['/sbin/mkfs.ext4', '-V'], package: 'e2fsprogs', everyVm: true },
  { name: 'mkfs.erofs', argv: ['mkfs.erofs', '--help'], package: 'erofs-utils', everyVm: false },
  { name: 'mmdebstrap', argv: ['mmdebstrap', '--version'], package: 'mmdebstrap', everyVm: false },
];

export const programsCheck: Check = {
  name: 'disk tools',
  async run({ signal }) {
    const outputs = await Promise.all(programs.map((program) => programOutput(program.argv, signal)));
    return judgePrograms(programs.filter((_, index) => outputs[index] === undefined).map((program) => program.name));
  },
};

export function judgePrograms(missing: readonly string[]): Finding {
  const absent = programs.filter((program) => missing.includes(program.name));
  if (absent.length === 0) return ok(programs.map((program) => program.name).join(', '));
  const message = `missing: ${absent.map((program) => program.name).join(', ')}`;
  const fix = `apt-get install --no-install-recommends ${absent.map((program) => program.package).join(' ')}`;
  return absent.some((program) => program.everyVm) ? fail(message, fix) : warn(`${message} (for building images)`, fix);
}
