/** Options of every list that comes in pages. */
import type { Command } from 'commander';
import { parsePositiveInt } from './number.ts';

export interface PageFlags {
  limit?: number;
  cursor?: string;
  allPages?: boolean;
}

export const addPageOptions = (command: Command): Command =>
  command
    .option('--limit <n>', 'how many at most (default 50, at most 200)', parsePositiveInt)
    .option('--cursor <cursor>', 'go on where an earlier list ended')
    .option('--all-pages', 'all of them');

export const pageOf = ({ limit, cursor }: PageFlags): { limit?: number; cursor?: string } => ({
  ...(limit === undefined ? {} : { limit }),
  ...(cursor === undefined ? {} : { cursor }),
});
