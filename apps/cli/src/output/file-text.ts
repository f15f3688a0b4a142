/** Files as people read them. Names are the guest's: nothing in them reaches the terminal as a control character. */
import type { FileInfo } from '@fuse/sdk';
import { printable } from './format.ts';

const letters: Record<FileInfo['type'], string> = {
  file: '-',
  directory: 'd',
  symlink: 'l',
  fifo: 'p',
  socket: 's',
  block_device: 'b',
  character_device: 'c',
};

export const fileName = (name: string): string => printable(name);

/** As `ls -l` has it. */
export function fileLine(file: FileInfo, name: string): string {
  const owner = `${file.user ?? file.uid} ${file.group ?? file.gid}`;
  const time = file.modified_at.replace('T', ' ').replace(/\.\d+/, '');
  const target = file.target === undefined ? '' : ` -> ${printable(file.target)}`;
  return `${letters[file.type]}${permissions(file.mode)} ${owner} ${String(file.size_bytes).padStart(10)} ${time} ${fileName(name)}${target}`;
}

/** `4755` is `rwsr-xr-x`. */
function permissions(mode: string): string {
  const bits = Number.parseInt(mode, 8);
  const special = [
    { set: (bits & 0o4000) !== 0, at: 2, letter: 's' },
    { set: (bits & 0o2000) !== 0, at: 5, letter: 's' },
    { set: (bits & 0o1000) !== 0, at: 8, letter: 't' },
  ];
  const text = [...'rwxrwxrwx'].map((letter, index) => ((bits >> (8 - index)) & 1 ? letter : '-'));
  for (const { set, at, letter } of special) if (set) text[at] = text[at] === 'x' ? letter : letter.toUpperCase();
  return text.join('');
}
