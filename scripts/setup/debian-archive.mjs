/**
 * Debian packages fetched and verified without touching this machine's own package system: apt with folders of its own, so that it
 * works on Ubuntu too. FUSE_DEBIAN_MIRROR names another mirror of Debian; proxies are apt's own business.
 */
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { run, SetupError } from './command.mjs';

const KEYRING = '/usr/share/keyrings/debian-archive-keyring.gpg';

/** @param {string} suite @returns {string[]} apt source lines */
export function sourceLines(suite) {
  const mirror = process.env.FUSE_DEBIAN_MIRROR;
  const main = mirror ?? 'http://deb.debian.org/debian';
  const lines = [`deb [arch=amd64 signed-by=${KEYRING}] ${main} ${suite} main`];
  if (mirror === undefined)
    lines.push(`deb [arch=amd64 signed-by=${KEYRING}] http://deb.debian.org/debian-security ${suite}-security main`);
  return lines;
}

/**
 * Downloads the package that `metaPackage` stands for into `directory` and answers its path.
 * @param {{suite: string, metaPackage: string, directory: string, signal: AbortSignal, onLine: (line: string) => void}} wanted
 */
export async function downloadPackage({ suite, metaPackage, directory, signal, onLine }) {
  const apt = join(directory, 'apt');
  for (const each of ['lists/partial', 'archives/partial', 'out']) await mkdir(join(apt, each), { recursive: true });
  const empty = join(apt, 'empty');
  await writeFile(empty, '');
  await writeFile(join(apt, 'sources.list'), `${sourceLines(suite).join('\n')}\n`);
  const options = [
    `Dir::Etc::SourceList=${join(apt, 'sources.list')}`,
    'Dir::Etc::SourceParts=-',
    `Dir::State::Lists=${join(apt, 'lists')}`,
    `Dir::State::status=${empty}`,
    `Dir::Cache=${apt}`,
    'APT::Architecture=amd64',
    'APT::Architectures=amd64',
    'APT::Sandbox::User=',
    'Acquire::Languages=none',
    'Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false',
  ].flatMap((option) => ['-o', option]);
  const context = { cwd: join(apt, 'out'), env: { LC_ALL: 'C' }, signal, onLine };
  await run(['apt-get', ...options, '-q', 'update'], context);
  const depends = await run(['apt-cache', ...options, 'depends', '--important', metaPackage], context);
  const name = /^\s*Depends: (\S+)$/m.exec(depends)?.[1];
  if (name === undefined) throw new SetupError(`Debian ${suite} has no package ${metaPackage}`);
  await run(['apt-get', ...options, '-q', 'download', name], context);
  const file = (await readdir(join(apt, 'out'))).find((each) => each.endsWith('.deb'));
  if (file === undefined) throw new SetupError(`apt-get download ${name} left no file`);
  return join(apt, 'out', file);
}
