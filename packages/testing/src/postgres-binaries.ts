/** Where Debian, Ubuntu and PATH keep PostgreSQL's programs, and the user that may run them. */
import { access, constants, readdir, readFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';

const DEBIAN_ROOT = '/usr/lib/postgresql';

/** The directory of the newest `initdb` and `postgres` on this machine. */
export async function findPostgresBinaries(env: NodeJS.ProcessEnv = process.env): Promise<string> {
  const versions = await readdir(DEBIAN_ROOT).catch(() => []);
  const newestFirst = versions
    .sort((a, b) => Number(b) - Number(a))
    .map((version) => join(DEBIAN_ROOT, version, 'bin'));
  const onPath = (env.PATH ?? '').split(delimiter).filter((directory) => directory !== '');
  for (const directory of [...newestFirst, ...onPath]) {
    if ((await isProgram(join(directory, 'initdb'))) && (await isProgram(join(directory, 'postgres'))))
      return directory;
  }
  throw new Error('tests need PostgreSQL and none is installed: run `apt-get install postgresql` (or `npm run setup`)');
}

const isProgram = (path: string): Promise<boolean> =>
  access(path, constants.X_OK).then(
    () => true,
    () => false,
  );

export interface UnixUser {
  uid: number;
  gid: number;
}

/** PostgreSQL refuses to run as root: then it gets `postgres`, or `nobody`. Undefined: run it as we are. */
export async function unprivilegedUser(): Promise<UnixUser | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  const lines = (await readFile('/etc/passwd', 'utf8')).split('\n').map((line) => line.split(':'));
  const entry = lines.find(([name]) => name === 'postgres') ?? lines.find(([name]) => name === 'nobody');
  const [, , uid, gid] = entry ?? [];
  if (uid === undefined || gid === undefined)
    throw new Error('root cannot run PostgreSQL and there is no user postgres or nobody');
  return { uid: Number(uid), gid: Number(gid) };
}
