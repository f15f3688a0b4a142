/**
 * How a VMM is confined. The spawner (jailer/, a Go program) starts a program in one step with: namespaces of its own (mount, pid, IPC, UTS, network), a root that
 * shows nothing but `root` and `binds`, an unprivileged user, cgroups, limits, a system call filter, no new privileges and no capabilities. The pid that it reports is the VMM's own,
 * as the host sees it.
 */
export interface Jail {
  /** Becomes `/`, read-only, nothing of it executable as another user: what the program needs and nothing else (binary, libraries, firmware, device nodes). */
  root: string;
  /** Further paths in it; `target` exists in `root`. Set-user-id bits are off in all of them, and so are devices where they are not asked for. */
  binds: readonly { source: string; target: string; writable: boolean; devices?: boolean }[];
  uid: number;
  gid: number;
  /** Absent: an empty one that is made for it. */
  networkNamespacePath?: string;
  /** `cgroup.procs` files (one for v2, one for each controller of v1) that it enters before it becomes unprivileged. */
  cgroupProcs: readonly string[];
  limits: {
    openFiles: number;
    fileSizeBytes: number;
    /** Of memory that is never swapped or moved, as devices need it; absent: what the host agent's children may have. */
    lockedBytes?: number;
  };
  /** Which filter: what QEMU never needs is refused (mount, ptrace, bpf, sockets other than Unix, …). */
  seccomp: 'qemu';
  /** Absolute paths in the jail that the program asks to open for reading and writing and gets for reading only: a template's memory, which QEMU maps privately. */
  readOnlyOpens: readonly string[];
}
