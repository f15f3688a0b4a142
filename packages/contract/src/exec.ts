/**
 * Commands in an environment. Every one has an id; its state, its result and its log can be read while it runs, after it ended, after a lost
 * connection, while its environment is paused, and for `EXEC_RETENTION_SECONDS` (a setting of the server) after that is destroyed.
 *
 * The log is a stream of frames (frames.ts: stdout, stderr, last exit) with byte offsets. It is bounded: what is over it leaves a gap that is told as
 * such. A command whose output is followed is held back, as by a pipe, rather than cut; see `ExecRequest.max_log_bytes`.
 *
 *   POST   /v1/environments/{id}?action=exec  ExecRequest -> 200 ExecResult at its end (202 Exec with `background`)
 *   POST   /v1/environments/{id}/execs        ExecRequest -> 201 Exec, started; 200 when an exec of that id exists: it is never started twice
 *          ?stream=ndjson|text|frames         -> 200, its log as it comes, to its end (header Fuse-Exec-Id). Aborting the request leaves it running
 *   GET    …/execs[?tty=true]                 -> 200 ListExecs, newest first
 *   GET    …/execs/{exec_id}?wait_ms=N        -> 200 Exec: at its end, or after N ms
 *   GET    …/execs/{exec_id}/result?encoding= -> 200 ExecResult | 409 still running
 *   GET    …/execs/{exec_id}/log?offset=N|tail=N&follow=1&stream=ndjson|text|frames (header Fuse-Log-Offset: where it begins)
 *   POST   …/execs/{exec_id}/stdin?offset=N&end=1  raw bytes -> 200 ExecStdin. `offset` is of its stdin: what it has already is passed over, so a
 *                                             request may be repeated; one that is ahead waits while another brings what lies between, or is
 *                                             409 after 2 s (details.reason=stdin_ahead, stdin_bytes). Without: appended
 *   POST   …/execs/{exec_id}/signal           SignalRequest -> 204
 *   DELETE …/execs/{exec_id}                  -> 204, the whole tree killed; its record stays
 *   GET    …/execs/{exec_id}/connect?offset=N|tail=N  WebSocket, binary messages of frames both ways. First the server's `open`; when the client's
 *                                             first frame is `spec` (ExecRequest) an exec of this id is started unless it exists
 *   GET    …/processes                        -> 200 ListProcesses
 *   POST   …/processes/{pid}/signal           SignalRequest -> 204
 *   GET    …/attach                           see attach.ts
 */
import { z } from 'zod';
import { absentIfNull, Encoding, EnvVars, GuestPath, Timestamp } from './primitives.ts';

/** Of `?action=exec` that waits for the end, when nothing is said; everywhere else: no limit but the environment's own life. */
export const EXEC_DEFAULT_TIMEOUT_MS = 60_000;
export const EXEC_MAX_TIMEOUT_MS = 30 * 86_400_000;
export const DEFAULT_LOG_BYTES = 8 * 1_048_576;
export const MIN_LOG_BYTES = 65_536;
export const MAX_LOG_BYTES = 64 * 1_048_576;
/** On streams that may stand still, at least this often something is sent. */
export const HEARTBEAT_MS = 15_000;

/** Of a timed-out command in ExecResult and on the command line. */
export const TIMED_OUT_EXIT_CODE = 124;

export const ExecId = z
  .string()
  .regex(/^[a-zA-Z0-9][a-zA-Z0-9_-]{0,62}$/, 'must be 1 to 63 letters, digits, "-" or "_"');

export const Argv = z
  .array(
    z
      .string()
      .max(131_072)
      .refine((arg) => !arg.includes('\0'), 'must not hold NUL'),
  )
  .min(1)
  .max(4096)
  .refine((argv) => argv[0] !== '', 'the program name must not be empty');

const terminalSide = z.number().int().min(1).max(65_535);
export const TerminalSize = z.object({ rows: terminalSide, cols: terminalSide });
export type TerminalSize = z.infer<typeof TerminalSize>;
export const DEFAULT_TERMINAL_SIZE = { rows: 24, cols: 80 } as const;

export const UserName = z.string().regex(/^[a-z_][a-z0-9_-]{0,31}$|^\d{1,9}$/, 'must be a user name or a numeric uid');

/** Exactly one of `cmd` and `shell` (→ `sh -lc`). */
export const ExecRequest = z.object({
  /** Chosen by the caller, so that a lost answer can be asked for again. Default: a fresh one. */
  id: absentIfNull(ExecId),
  cmd: absentIfNull(z.array(z.string()).max(4096)),
  shell: absentIfNull(z.string().max(1_048_576)),
  /** What the caller says: there is no cap but 30 days. 0 or absent: 60 000 for `?action=exec` that waits, else none. On expiry the whole process tree is killed. */
  timeout_ms: absentIfNull(z.number().int().min(0).max(EXEC_MAX_TIMEOUT_MS)),
  env: absentIfNull(EnvVars),
  cwd: absentIfNull(GuestPath.or(z.literal('/'))),
  user: absentIfNull(UserName),
  /** Of the answer's streams, and of ndjson. */
  encoding: absentIfNull(Encoding),
  /** All of its stdin. Without it, and without `stdin_open`, stdin is empty. */
  stdin: absentIfNull(z.string()),
  stdin_encoding: absentIfNull(Encoding),
  /** More stdin will come by `…/stdin` or `…/connect`, until `end`. */
  stdin_open: absentIfNull(z.boolean()),
  /** `?action=exec` answers 202 with the Exec once it is started. */
  background: absentIfNull(z.boolean()),
  /** Of `?action=exec`, whose caller ends the command by leaving: it runs on, for a caller who chose its id and comes back for its result. */
  keep_running: absentIfNull(z.boolean()),
  /** Kill what it left running when it ends; default false: background children live on. */
  kill_on_exit: absentIfNull(z.boolean()),
  /** Kept of its log: the first half of this and the last. Default 8 MiB. Never less than what a follower that keeps up has still to read. */
  max_log_bytes: absentIfNull(z.number().int().min(MIN_LOG_BYTES).max(MAX_LOG_BYTES)),
  /** In a terminal of this size: stdout and stderr are one, stdin is open. */
  tty: absentIfNull(TerminalSize),
});
export type ExecRequest = z.infer<typeof ExecRequest>;

/**
 * `stdout` and `stderr` are always present; with `encoding: "base64"` they are base64 of the exact bytes, with
 * `utf8` (the default) invalid sequences become U+FFFD and `lossy` says so. Each stream is bounded: `truncated` names what was cut,
 * the `*_bytes` counts are of everything that the command wrote.
 */
export const ExecResult = z.object({
  exec_id: z.string(),
  exit_code: z.number().int(),
  stdout: z.string(),
  stderr: z.string(),
  encoding: Encoding,
  stdout_bytes: z.number().int(),
  stderr_bytes: z.number().int(),
  truncated: z.boolean(),
  lossy: z.boolean().optional(),
  signal: z.string().optional(),
  timed_out: z.boolean(),
  oom_killed: z.boolean(),
  duration_ms: z.number().int(),
});
export type ExecResult = z.infer<typeof ExecResult>;

export const ExecExit = z.object({
  /** 124 when timed out, 128+n when killed by signal n. */
  exit_code: z.number().int(),
  signal: z.string().optional(),
  timed_out: z.boolean(),
  oom_killed: z.boolean(),
  stdout_bytes: z.number().int(),
  stderr_bytes: z.number().int(),
  duration_ms: z.number().int(),
});
export type ExecExit = z.infer<typeof ExecExit>;

export const Exec = z.object({
  id: z.string(),
  /** `lost`: its VM died, or was restored to a moment before: its end is unknown, `error` says why. It is never run again by itself. */
  state: z.enum(['running', 'exited', 'lost']),
  /** As given, cut for display. */
  command: z.array(z.string()),
  cwd: z.string().optional(),
  user: z.string().optional(),
  /** In a terminal: its size now, and how many watch it. */
  tty: TerminalSize.extend({ viewers: z.number().int() }).optional(),
  stdin_open: z.boolean(),
  created_at: Timestamp,
  ended_at: Timestamp.optional(),
  exit: ExecExit.optional(),
  error: z.string().optional(),
  /** Offsets of its log: where it ends (so far), and what is not kept of it. */
  log_end: z.number().int(),
  log_gap: z.object({ from: z.number().int(), to: z.number().int() }).optional(),
});
export type Exec = z.infer<typeof Exec>;

export const ListExecs = z.object({ execs: z.array(Exec) });
export type ListExecs = z.infer<typeof ListExecs>;

/** A line of `stream=ndjson`: what follows this `offset` is told by the next one. Lines `{"heartbeat":true}` come while nothing does. */
export const ExecLogLine = z.union([
  z.object({ stream: z.enum(['stdout', 'stderr']), data: z.string(), encoding: Encoding, offset: z.number().int() }),
  z.object({ gap: z.object({ from: z.number().int(), to: z.number().int() }), offset: z.number().int() }),
  z.object({ exit: ExecExit, offset: z.number().int() }),
  /** The VM was lost: no exit will come. */
  z.object({ lost: z.string(), offset: z.number().int() }),
  z.object({ heartbeat: z.literal(true) }),
]);
export type ExecLogLine = z.infer<typeof ExecLogLine>;
export const LogStream = z.enum(['ndjson', 'text', 'frames']);
export type LogStream = z.infer<typeof LogStream>;

export const ExecStdin = z.object({ stdin_bytes: z.number().int(), closed: z.boolean() });
export type ExecStdin = z.infer<typeof ExecStdin>;

/** Payload of the `open` frame. */
export const ExecOpened = z.object({
  exec_id: z.string(),
  /** Of the log, where the frames that follow begin. */
  offset: z.number().int(),
  /** Where the log ended then: what comes before it was written before, and is shown again. */
  log_end: z.number().int().optional(),
  /** What it has of its stdin: a caller that reconnects goes on there. */
  stdin_bytes: z.number().int(),
  stdin_closed: z.boolean(),
  tty: TerminalSize.optional(),
});
export type ExecOpened = z.infer<typeof ExecOpened>;

export const signalNames = [
  'SIGHUP',
  'SIGINT',
  'SIGQUIT',
  'SIGKILL',
  'SIGUSR1',
  'SIGUSR2',
  'SIGPIPE',
  'SIGALRM',
  'SIGTERM',
  'SIGCONT',
  'SIGSTOP',
  'SIGTSTP',
  'SIGTTIN',
  'SIGTTOU',
  'SIGWINCH',
] as const;
export const SignalName = z.enum(signalNames);
export type SignalName = z.infer<typeof SignalName>;
export const SignalRequest = z.object({
  signal: absentIfNull(SignalName),
  /** To all that it started too, however they hid (of an exec), or to all its descendants (of a process). Default: the process group of its leader. */
  tree: absentIfNull(z.boolean()),
});
export type SignalRequest = z.infer<typeof SignalRequest>;

export const ProcessInfo = z.object({
  pid: z.number().int(),
  ppid: z.number().int(),
  /** argv, cut; kernel threads are not listed. */
  command: z.array(z.string()),
  user: z.string(),
  /** One letter, as in /proc: R, S, D, T, Z. */
  state: z.string(),
  started_at: Timestamp,
  cpu_seconds: z.number(),
  /** Resident. */
  memory_bytes: z.number().int(),
  /** Of which exec it is. */
  exec_id: z.string().optional(),
});
export type ProcessInfo = z.infer<typeof ProcessInfo>;
export const ListProcesses = z.object({ processes: z.array(ProcessInfo), truncated: z.boolean() });
export type ListProcesses = z.infer<typeof ListProcesses>;
