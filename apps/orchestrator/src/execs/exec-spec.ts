/** What a caller asks for, as the host agent is told it. */
import { AppError, DEFAULT_LOG_BYTES, EXEC_DEFAULT_TIMEOUT_MS, type ExecRequest, invalidField } from '@fuse/contract';
import type { StartExec } from '@fuse/host-protocol';

/**
 * `call`: the caller waits for the result of `?action=exec`. `resource`: it is looked at by its id, or never. `stream`: its caller follows its log from
 * the start, and comes back when the connection is cut.
 */
export type ExecForm = 'call' | 'resource' | 'stream';

/** How long a command waits for a follower that was cut off, before it loses output rather than time. */
export const UNTIL_FOLLOWED_MS = 60_000;

export function toStartExec(request: ExecRequest, form: ExecForm): StartExec {
  const { env, cwd, user, tty, kill_on_exit } = request;
  const stdin = stdinOf(request);
  return {
    argv: argvOf(request),
    timeout_ms: request.timeout_ms || (form === 'call' ? EXEC_DEFAULT_TIMEOUT_MS : 0),
    max_log_bytes: request.max_log_bytes ?? DEFAULT_LOG_BYTES,
    ...(form === 'call' ? {} : followed(form === 'stream' || request.stdin_open === true)),
    ...(stdin === undefined ? {} : { stdin_base64: stdin }),
    ...(request.stdin_open === true || tty !== undefined ? { stdin_open: true } : {}),
    ...(env === undefined ? {} : { env }),
    ...(cwd === undefined ? {} : { cwd }),
    ...(user === undefined ? {} : { user }),
    ...(tty === undefined ? {} : { tty }),
    ...(kill_on_exit === undefined ? {} : { kill_on_exit }),
  };
}

/** Offsets stay those of all that it wrote; whoever follows it holds it back, also `awaited` for a while. */
const followed = (awaited: boolean): Pick<StartExec, 'keep' | 'hold'> => ({
  keep: 'ends',
  hold: { until_followed_ms: awaited ? UNTIL_FOLLOWED_MS : 0 },
});

function argvOf(request: ExecRequest): string[] {
  const cmd = request.cmd !== undefined && request.cmd.length > 0 ? request.cmd : undefined;
  const shell = request.shell !== undefined && request.shell !== '' ? request.shell : undefined;
  if (cmd !== undefined && shell !== undefined)
    throw new AppError('invalid_argument', 'cmd and shell are mutually exclusive', { details: { field: 'cmd' } });
  const argv = cmd ?? (shell === undefined ? undefined : ['sh', '-lc', shell]);
  if (argv === undefined)
    throw new AppError('invalid_argument', 'one of cmd or shell is required', { details: { field: 'cmd' } });
  if (argv[0] === '') throw invalidField('cmd.0', 'the program name must not be empty');
  const withNul = argv.findIndex((arg) => arg.includes('\0'));
  if (withNul >= 0) throw invalidField(cmd === undefined ? 'shell' : `cmd.${withNul}`, 'must not hold NUL');
  return argv;
}

function stdinOf({ stdin, stdin_encoding }: ExecRequest): string | undefined {
  if (stdin === undefined || stdin === '') return undefined;
  if (stdin_encoding !== 'base64') return Buffer.from(stdin, 'utf8').toString('base64');
  if (!/^[A-Za-z0-9+/]*={0,2}$/.test(stdin) || stdin.length % 4 !== 0)
    throw invalidField('stdin', 'must be base64, as stdin_encoding says');
  return stdin;
}
