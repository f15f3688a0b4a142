/** versitygw is the real S3 server of the tests: built from its pinned source once, then kept under `<FUSE_HOME>/tools`. */
import { spawn } from 'node:child_process';
import { access, constants, mkdir } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';

export const VERSITYGW_VERSION = 'v1.8.0';

// Under a lock, so that workers that ask together build once; installed elsewhere and renamed, so that a cut build leaves no program.
const buildScript = `
set -e
[ -x "$1/versitygw" ] && exit 0
rm -rf "$1/building"
GOBIN="$1/building" go install "github.com/versity/versitygw/cmd/versitygw@$2" || {
  echo "building it needs Go 1.24 or later and the Go module proxy" >&2
  exit 1
}
mv "$1/building/versitygw" "$1/versitygw"
rmdir "$1/building"
`;

export interface BuildOptions {
  env?: NodeJS.ProcessEnv;
  /** Told what is about to happen, and each line of the build. */
  report?: (line: string) => void;
}

/** The program's path; the first call on a machine takes a minute or two. */
export async function ensureVersitygw({ env = process.env, report = () => {} }: BuildOptions = {}): Promise<string> {
  const home = env.FUSE_HOME ?? join(env.HOME ?? homedir(), '.fuse');
  const directory = join(home, 'tools', `versitygw-${VERSITYGW_VERSION}`);
  const program = join(directory, 'versitygw');
  if (await isProgram(program)) {
    report(`versitygw ${VERSITYGW_VERSION}: already built`);
    return program;
  }
  report(`versitygw ${VERSITYGW_VERSION}: building the S3 server of the tests into ${directory}`);
  await mkdir(directory, { recursive: true });
  const lock = join(directory, 'lock');
  await run(['flock', lock, '/bin/sh', '-c', buildScript, 'build', directory, VERSITYGW_VERSION], env, report);
  report(`versitygw ${VERSITYGW_VERSION}: built`);
  return program;
}

const isProgram = (path: string): Promise<boolean> =>
  access(path, constants.X_OK).then(
    () => true,
    () => false,
  );

async function run([program, ...args]: [string, ...string[]], env: NodeJS.ProcessEnv, report: (line: string) => void) {
  const child = spawn(program, args, { env, stdio: ['ignore', 'ignore', 'pipe'] });
  let tail = '';
  child.stderr.setEncoding('utf8');
  child.stderr.on('data', (text: string) => {
    tail = (tail + text).slice(-4_000);
    for (const line of text.split('\n').filter((each) => each !== '')) report(line);
  });
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', resolve);
  });
  if (code !== 0) throw new Error(`cannot build versitygw ${VERSITYGW_VERSION}:\n${tail}`);
}
