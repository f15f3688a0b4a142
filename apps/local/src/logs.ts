/** `fuse local logs`. */
import { access } from 'node:fs/promises';
import { Failure, say } from './failure.ts';
import type { Home } from './home.ts';
import { runningStack } from './local-file.ts';
import { printLog } from './log-file.ts';

export async function logs(home: Home, { follow, lines }: { follow: boolean; lines: number }): Promise<void> {
  const stack = await runningStack(home);
  if (stack !== undefined && stack.log === undefined)
    say('the local stack runs in a foreground: its log is there; what follows is of an earlier one');
  await access(home.log).catch((cause) => {
    throw new Failure('there is no log yet', 'fuse local up makes one', cause);
  });
  const closed = new AbortController();
  process.stdout.on('error', () => closed.abort()); // nobody reads it any more
  const signal = follow ? closed.signal : undefined;
  await printLog(home.log, { lines, follow: signal }, (bytes) => void process.stdout.write(bytes));
}
