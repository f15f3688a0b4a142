/** The server's hints speak of its routes and fields; where the command line has words of its own for it, those. */
import type { FuseApiError } from '@fuse/sdk';

const byReason: Record<string, string> = {
  ambiguous: 'give more of the surrounding text, or --all',
  no_terminal: '`fuse environment logs --follow` shows what it writes',
  no_network_card: 'start it with --egress allowlist, without --allow, when it may need a network later',
  no_match: 'the text must be in the file exactly, spaces and line ends included',
  not_a_directory: '`fuse environment ls -l` says what is there',
  not_a_regular_file: '`fuse environment ls -l` says what is there; `fuse cp` copies directories',
  exec_failed: 'the program, its working directory and its user must be there in the environment',
  is_a_directory: '`fuse cp` copies directories',
};

export function apiHint({ status, code, reason, details, hint }: FuseApiError): string | undefined {
  if (code === 'quota_exceeded') return hint ?? '`fuse quotas` shows what the tenant may have, and has';
  if (status === 401 && reason === 'missing or malformed credentials')
    return 'set FUSE_TOKEN beside FUSE_URL, or remember both: fuse connect URL --token TOKEN';
  if (code === 'unauthorized' && details?.scope !== undefined)
    return `a key made with --scope ${details.scope.split(' or ')[0]} may do that: fuse apikeys create --help`;
  if (reason.includes('startup script timeout exceeds the configured maximum'))
    return 'with --no-wait or --follow it may take as long as it says';
  if (code === 'not_found' && details?.path !== undefined) return '`fuse environment ls` shows what is in a directory';
  if (details?.reason === 'no_network_card' && hint?.includes('fallback'))
    return '--fallback disk starts it from its disk alone, with a network card';
  if (details?.exec_id === 'startup') return '`fuse environment logs ID startup` shows all that the script wrote';
  if (details?.state === 'paused')
    return '`fuse environment resume` lets it go on; one that was created with --auto-resume does by itself';
  if (code === 'not_found' && /^snapshot \S+ not found$/.test(reason))
    return 'snapshots are given by their ids: `fuse snapshot list --name NAME` shows those of a name';
  if (code === 'not_found' && details?.ended_at !== undefined)
    return `it ${details.state === 'failed' ? 'failed' : 'was destroyed'} at ${details.ended_at}${details.error === undefined ? '' : `: ${details.error}`}`;
  return byReason[details?.reason ?? ''] ?? hint;
}
