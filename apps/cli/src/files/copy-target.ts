/** Where `fuse cp` puts what it copies: the rules of docker cp. */
import { posix } from 'node:path';
import { CliError } from '../cli-error.ts';

export interface CopySource {
  path: string;
  isDirectory: boolean;
}

export interface CopyDestination {
  path: string;
  /** Undefined: there is nothing yet. */
  is: 'file' | 'directory' | undefined;
}

/** `dir/.` means what is in it. */
export const meansContents = (path: string): boolean => path === '.' || path.endsWith('/.');

/**
 * The path that the source gets. A file goes to the path, or into it when that is a directory; a directory becomes the path when that does not exist yet,
 * else goes into it under its own name, or with what is in it when it was written `dir/.`.
 */
export function copyTarget(source: CopySource, destination: CopyDestination): string {
  const wantsDirectory = destination.path.endsWith('/');
  if (destination.is === 'file') {
    if (source.isDirectory) throw new CliError(`${destination.path} is a file, and ${source.path} is a directory`);
    if (wantsDirectory) throw new CliError(`${destination.path} is not a directory`);
    return destination.path;
  }
  if (destination.is === undefined) {
    if (!source.isDirectory && wantsDirectory)
      throw new CliError(`${destination.path} does not exist`, {
        hint: 'Leave the trailing "/" out to copy to that name.',
      });
    return withoutTrailingSlashes(destination.path);
  }
  if (source.isDirectory && meansContents(source.path)) return withoutTrailingSlashes(destination.path);
  return posix.join(destination.path, ownName(source.path));
}

function ownName(path: string): string {
  const name = posix.basename(posix.normalize(withoutTrailingSlashes(path)));
  if (name === '' || name === '.' || name === '..' || name === '/')
    throw new CliError(`${path} has no name of its own to be copied under`, {
      hint: `Write ${path.replace(/\/$/, '')}/. for what is in it.`,
    });
  return name;
}

const withoutTrailingSlashes = (path: string): string => (/^\/+$/.test(path) ? '/' : path.replace(/\/+$/, ''));
