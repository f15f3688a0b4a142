/**
 * Host agent <-> guest agent: HTTP/2 with prior knowledge over the VM's guest channel. The guest is hostile: every
 * answer is bounded and parsed by these schemas. JSON bodies unless stated.
 *
 * Greeting. Each time the host end of the channel is (re)connected, the guest closes and reopens its port, waits for the
 * host, and writes GUEST_GREETING; the host sends nothing before it has read those bytes, then HTTP/2 begins. Bytes before the greeting
 * are of an earlier connection, the host passes over them. A guest that misses a short absence of the host writes no greeting: a host
 * that has waited in vain for one disconnects, stays away for 20 ms or more, and tries again. Over vsock (Firecracker) each connection is a stream of its own:
 * the guest greets it as soon as it is there, and there may be others.
 *
 *   GET    /v1/health                    -> 200 GuestHealth
 *   POST   /v1/identity GuestIdentity    -> 200 GuestIdentityConfirmed   (after every boot and restore, before hand-over)
 *   POST   /v1/execs/{id}?offset=N       full duplex, frames both ways (contract/frames.ts):
 *            host->guest  [spec] stdin* stdinEnd ack* signal*       guest->host  stdout* stderr* exit
 *          The response is the exec's frame stream from byte N of it. With a spec frame first, the exec is started unless
 *          an exec of that id exists already (then the spec is ignored: nothing ever runs twice). Without one, an unknown id is 404.
 *          200 is answered once the program is started; 400 ExecStartError when it cannot be (nothing ran, nothing is kept).
 *          The guest keeps every byte that no ack covers, up to EXEC_WINDOW_BYTES, then lets the command wait; a host that
 *          reconnects asks from the offset it has safe. `offset` below the acked one is 409.
 *          The exit frame is the last one: payload GuestExecExit. The exec is remembered until DELETE, or 1 000 newer ones.
 *   POST   /v1/execs/{id}/ack?offset=N   -> 204. The ack frame as a request: a frame behind stdin that the command does not read is not
 *          seen until it reads on, which it may not do before its output is acknowledged. A host that writes stdin acknowledges by this route.
 *          The guest writes heartbeats nowhere; a channel that stands still is the host's to ping.
 *   POST   /v1/execs/{id}/stdin?offset=N&end=1  body: raw bytes, streamed -> 200 ExecStdin once all of them are written to the command. Each piece is
 *          written as it comes; the response says what it has in the end. With offset: bytes below what it has are passed over; one that is ahead of it waits while another request
 *          brings what lies between, or is 409 after 2 s (details.reason=stdin_ahead, stdin_bytes). Without: appended where it is, also from several requests at once. `end`: closes stdin behind them (of a terminal: sends
 *          its end-of-file character). 409 details.reason=stdin_closed when it takes none.
 *   POST   /v1/execs/{id}/resize TerminalSize   -> 204 (409 when it has no terminal); SIGWINCH follows by itself
 *   POST   /v1/execs/{id}/signal GuestSignal    -> 204, also when it has ended. `tree`: every process of its cgroup
 *   GET    /v1/processes                 -> 200 ListProcesses (contract), at most 4 096
 *   POST   /v1/processes/{pid}/signal GuestSignal -> 204 | 404; the agent itself (pid 1) and kernel threads are 409. `tree`: it and its descendants
 *   POST   /v1/tunnels?port=N            full duplex to 127.0.0.1:N, or [::1]:N when that refuses. 200 once connected, 409 details.reason=connection_refused or too_many_tunnels.
 *          The request is raw bytes, its end half-closes towards the server. The response is frames: stdout* with the server's bytes, then an empty stdinEnd when the
 *          server has ended its side (Go's HTTP/2 cannot end a response and read on, so the half-close is told in it). The response ends once both sides have ended;
 *          a reset of the stream is an abort of the connection, either way
 *   PUT    /v1/healthcheck Healthcheck   -> 204; replaces an earlier one and begins with `starting`. DELETE -> 204
 *   GET    /v1/healthcheck               -> 200 GuestHealthcheck | 404 when there is none
 *   GET    /v1/execs                     -> 200 {execs: GuestExecStatus[]}
 *   GET    /v1/execs/{id}                -> 200 GuestExecStatus | 404
 *   DELETE /v1/execs/{id}                -> 204, the whole process tree killed and the record forgotten (also when unknown: it is not started any more)
 *   PUT    /v1/files?path=&mode=&uid=&gid=&sha256=   body: bytes -> 201 GuestFileWritten. Temporary file, then rename; parents are made.
 *          With sha256 (hex) a mismatch is 400 and leaves nothing. `user=` is an account's name, instead of uid and gid; `exclusive=1`: 409 exists when it is there;
 *          `keep=1`: what mode and owner do not say is that of the file that is replaced; the last part of the path, when it is a symlink, is followed then.
 *          `unhashed=1`, without sha256: the guest makes no sum, which under emulation costs more than all the rest, and the answer is GuestFileTaken.
 *   GET    /v1/files?path=&start=N&end=M -> 200 bytes [start, end), `content-length` set, regular files only; 404, 409 (not a regular file). Headers
 *          file-size (all of it), file-mode (octal), file-uid, file-gid, file-modified-ms. Opened O_NOFOLLOW unless `follow=1`; start over its size is 400 details.size.
 *   HEAD   /v1/files?path=&follow=1      -> the same without a body
 *   POST   /v1/files/{operation}         JSON, contract's `fileOperations`
 *   GET    /v1/watch?path=&recursive=1   -> 200 WatchEvent a line (contract), `ready` once everything that is there is watched; ends after the path is gone
 *   GET    /v1/tar?path=                 -> 200 tar, ended by two zero blocks; reset when something could not be read. A file that changes size under it is padded or cut, never a broken archive
 *   PUT    /v1/tar?path=&uid=&gid=&user= body: tar -> 200 TarIn
 *   POST   /v1/glob GuestGlobRequest     -> 200 GuestGlobResult
 *   POST   /v1/sync                      -> 204 once file systems are flushed
 *   POST   /v1/freeze {deadline_ms}      -> 204 once the writable file system is flushed and frozen; thaws by itself after deadline_ms (at most 60 000)
 *   POST   /v1/thaw                      -> 204, also when it is not frozen
 * Errors: status and {error: {code, message, details?}}, code one of contract's.
 */
import { Health, SignalName, TerminalSize } from '@fuse/contract';
import { z } from 'zod';

export const GUEST_PORT_NAME = 'fuse.guest.0';
/** Where the guest listens when it has a vsock in place of the port. */
export const GUEST_VSOCK_PORT = 1024;
export const GUEST_GREETING = 'FUSE/1 ready\n';
export const GUEST_PROTOCOL = 1;
export const RESTORED_HOOKS_DIRECTORY = '/etc/fuse/restored.d';
/** Holds the generation in decimal and a newline; replaced by rename, so that watchers see a whole one. */
export const GENERATION_FILE = '/run/fuse/generation';
export const EXEC_WINDOW_BYTES = 1_048_576;

export const GuestHealth = z.object({
  protocol: z.literal(GUEST_PROTOCOL),
  agent_version: z.string().max(128),
  kernel: z.string().max(256),
  boot_id: z.string().max(64),
  uptime_ms: z.number().nonnegative(),
  /** Number of the last confirmed identity; 0 before the first. */
  generation: z.number().int().nonnegative(),
  execs: z.number().int().nonnegative(),
});
export type GuestHealth = z.infer<typeof GuestHealth>;

export const GuestIdentity = z.object({
  /** Nanoseconds since the epoch, as a decimal string (it is over 2^53). */
  time_unix_ns: z.string(),
  /** 64 fresh bytes, base64. */
  entropy_base64: z.string(),
  hostname: z.string(),
  /** 32 lower-case hex digits. */
  machine_id: z.string(),
  /** Of this restore; larger than every earlier one. Written to GENERATION_FILE before the hooks run. */
  generation: z.number().int().positive(),
  /**
   * Run the executables of RESTORED_HOOKS_DIRECTORY, in the order of their names, before the answer: environment FUSE_GENERATION, FUSE_HOSTNAME,
   * FUSE_REASON. Each gets what is left of this; one that fails or is late is reported, killed with its tree, and holds nothing up. 0 or absent: none are run;
   * at most 60 000. They run once for a generation: asked again, the answer is the same. At most 64 are run.
   */
  hooks_deadline_ms: z.number().int().nonnegative().optional(),
  /** `create`, `fork`, `restore` or `resume`. */
  reason: z.string().max(32).optional(),
  /**
   * Of a VM with a network card (the only one, virtio): the guest sets hardware address, address and default route, takes it up and writes
   * /etc/resolv.conf. IPv6 stays off. Absent: a card that is there is taken down.
   */
  network: z
    .object({
      mac: z.string(),
      address: z.string(),
      prefix_bits: z.number().int(),
      gateway: z.string(),
      resolver: z.string(),
      mtu: z.number().int(),
    })
    .optional(),
});
export type GuestIdentity = z.infer<typeof GuestIdentity>;

export const GuestIdentityConfirmed = z.object({
  generation: z.number().int(),
  /** The guest's clock at the moment of the answer, after the hooks. */
  time_unix_ns: z.string().max(32),
  hostname: z.string().max(64),
  hooks: z
    .array(
      z.object({
        name: z.string().max(256),
        exit_code: z.number().int(),
        timed_out: z.boolean(),
        /** The end of what it wrote, for people. */
        output: z.string().max(2_048),
      }),
    )
    .max(64)
    .optional(),
});
export type GuestIdentityConfirmed = z.infer<typeof GuestIdentityConfirmed>;

export const ExecSpec = z.object({
  argv: z.array(z.string()).min(1),
  env: z.record(z.string(), z.string()).optional(),
  /** Default `/workspace` (made when missing). */
  cwd: z.string().optional(),
  /** Name in the image's /etc/passwd, or numeric uid; default root. */
  user: z.string().optional(),
  /** 0 or absent: no limit by the guest. On expiry the exec's whole cgroup is killed. */
  timeout_ms: z.number().int().nonnegative().optional(),
  /** False: stdin is /dev/null. True: stdin frames follow, then stdinEnd. */
  stdin: z.boolean(),
  /** Kill what the command left running when it ends; default false: background children live on. */
  kill_on_exit: z.boolean().optional(),
  /** A pseudo-terminal of this size is its stdin, stdout, stderr and controlling terminal; all output is of stdout. TERM is xterm-256color unless env says else. `stdin` is true. */
  tty: TerminalSize.optional(),
  /** Instead of argv[0] as the program's own name: a login shell's begins with "-". `argv` empty is not legal: ["$SHELL"] means the account's shell. */
  login: z.boolean().optional(),
});
export type ExecSpec = z.infer<typeof ExecSpec>;

export const GuestExecExit = z.object({
  /** 128+n when killed by signal n. */
  exit_code: z.number().int().min(0).max(255),
  signal: z.string().max(32).optional(),
  timed_out: z.boolean(),
  oom_killed: z.boolean(),
  stdout_bytes: z.number().int().nonnegative(),
  stderr_bytes: z.number().int().nonnegative(),
  duration_ms: z.number().nonnegative(),
});
export type GuestExecExit = z.infer<typeof GuestExecExit>;

export const GuestExecStatus = z.object({
  id: z.string().max(128),
  pid: z.number().int(),
  running: z.boolean(),
  /** Bytes of stdin taken so far: where a host that reconnects goes on. */
  stdin_bytes: z.number().int().nonnegative(),
  stdin_closed: z.boolean(),
  /** Bytes produced in the frame stream, and the first that is still kept. */
  offset_end: z.number().int().nonnegative(),
  offset_acked: z.number().int().nonnegative(),
  exit: GuestExecExit.optional(),
});
export const GuestSignal = z.object({ signal: SignalName, tree: z.boolean().optional() });
export type GuestSignal = z.infer<typeof GuestSignal>;

/** `since` is replaced by the host with a time of its own clock: the guest says how long ago. */
export const GuestHealthcheck = Health.omit({ since: true }).extend({
  since_ms_ago: z.number().nonnegative(),
  message: z.string().max(2_048).optional(),
});
export type GuestHealthcheck = z.infer<typeof GuestHealthcheck>;

export type GuestExecStatus = z.infer<typeof GuestExecStatus>;

/** Of an upload with `unhashed=1`: who sends it makes the sum. */
export const GuestFileTaken = z.object({ size_bytes: z.number().int().nonnegative() });
export type GuestFileTaken = z.infer<typeof GuestFileTaken>;

export const GuestFileWritten = z.object({ size_bytes: z.number().int().nonnegative(), sha256: z.string().length(64) });
export type GuestFileWritten = z.infer<typeof GuestFileWritten>;

export const GuestGlobRequest = z.object({
  /** Absolute; relative patterns are resolved below it and results are relative to it. */
  cwd: z.string(),
  patterns: z.array(z.string()),
  max_files: z.number().int().positive(),
});
export type GuestGlobRequest = z.infer<typeof GuestGlobRequest>;

/** Symlinks are never followed, neither as the target nor as a directory on the way: they are reported in `skipped`. */
export const GuestGlobResult = z.object({
  files: z
    .array(
      z.object({
        path: z.string().max(4096),
        absolute_path: z.string().max(4096),
        size_bytes: z.number().int().nonnegative(),
        mode: z.number().int(),
      }),
    )
    .max(10_000),
  skipped: z
    .array(
      z.object({
        path: z.string().max(4096),
        reason: z.enum(['symlink', 'not_a_regular_file', 'unreadable', 'bad_name', 'too_many']),
      }),
    )
    .max(10_000),
});
export type GuestGlobResult = z.infer<typeof GuestGlobResult>;

export const GuestErrorBody = z.object({
  error: z.object({
    code: z.string().max(64),
    message: z.string().max(4096),
    details: z.record(z.string().max(64), z.string().max(4096)).optional(),
  }),
});
