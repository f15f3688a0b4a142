import { EndsSpool } from './ends-spool.ts';
import type { ExecRecord } from './exec-record.ts';
import type { Followers } from './followers.ts';
import { FrameSpool } from './frame-spool.ts';
import { headPath } from './log-parts.ts';
import type { Spool } from './spool.ts';

/** What is on its way to a screen is not far behind what the keyboard says: an interrupt shows at once. */
const TERMINAL_LAG_BYTES = 262_144;

export interface SpoolParts {
  /** Nothing of it can be there yet. */
  isNew: boolean;
  followers: Followers;
  onTruncated: () => Promise<void>;
  onAppended: () => void;
}

/** As the exec's record asks for. */
export async function openSpool(directory: string, record: ExecRecord, parts: SpoolParts): Promise<Spool> {
  const { keep, max_log_bytes: limitBytes, log_truncated: truncated, tty } = record;
  if (keep === 'head') {
    const options = { ...parts, path: headPath(directory), limitBytes, truncated };
    return parts.isNew ? FrameSpool.begin(options) : FrameSpool.open(options);
  }
  const maxLagBytes = tty === undefined ? undefined : TERMINAL_LAG_BYTES;
  return EndsSpool.open({ ...parts, directory, limitBytes, maxLagBytes });
}
