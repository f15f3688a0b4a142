package seccomp

import "golang.org/x/sys/unix"

// What QEMU 7.2 and later never need. Some of it is beyond an unprivileged user anyhow: the filter keeps the kernel's code for it out of reach.
var refused = []uint32{
	// Other processes.
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE, unix.SYS_PROCESS_MRELEASE, unix.SYS_KCMP,
	unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_GETFD, unix.SYS_PIDFD_SEND_SIGNAL,
	// File systems and namespaces.
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_FSOPEN, unix.SYS_FSCONFIG,
	unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_STATMOUNT, unix.SYS_LISTMOUNT, unix.SYS_UNSHARE, unix.SYS_SETNS,
	unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_FANOTIFY_INIT, unix.SYS_FANOTIFY_MARK, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
	unix.SYS_MKNOD, unix.SYS_MKNODAT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_SYSFS, unix.SYS_USTAT,
	// Who one is.
	unix.SYS_SETUID, unix.SYS_SETGID, unix.SYS_SETREUID, unix.SYS_SETREGID, unix.SYS_SETRESUID, unix.SYS_SETRESGID, unix.SYS_SETFSUID, unix.SYS_SETFSGID,
	unix.SYS_SETGROUPS, unix.SYS_CAPSET, unix.SYS_PERSONALITY,
	// Parts of the kernel where faults are found again and again.
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL, unix.SYS_MODIFY_LDT, unix.SYS_REMAP_FILE_PAGES, unix.SYS_VMSPLICE, unix.SYS_MEMFD_SECRET,
	unix.SYS_MBIND, unix.SYS_SET_MEMPOLICY, unix.SYS_SET_MEMPOLICY_HOME_NODE, unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES,
	unix.SYS_MQ_OPEN, unix.SYS_MSGGET, unix.SYS_SEMGET, unix.SYS_SHMGET, unix.SYS_LOOKUP_DCOOKIE,
	// The machine.
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_CREATE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_REBOOT,
	unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX, unix.SYS_SETHOSTNAME,
	unix.SYS_SETDOMAINNAME, unix.SYS_SYSLOG, unix.SYS_ACCT, unix.SYS_VHANGUP, unix.SYS_USELIB, unix.SYS__SYSCTL, unix.SYS_NFSSERVCTL,
}

// Calls whose arguments lie in memory, where a filter does not see them: the C library and QEMU then take the older ones.
var unseen = []uint32{unix.SYS_CLONE3, unix.SYS_OPENAT2}

// What can be done to a terminal, or by whoever has a tap's descriptor to the tap itself: QEMU sets offloads and header sizes of it, no more.
var refusedControls = []uint32{
	unix.TIOCSTI, unix.TIOCLINUX,
	unix.TUNSETIFF, unix.TUNSETPERSIST, unix.TUNSETOWNER, unix.TUNSETGROUP, unix.TUNSETLINK, unix.TUNSETQUEUE, unix.TUNSETSTEERINGEBPF, unix.TUNSETFILTEREBPF,
	unix.TUNATTACHFILTER, unix.SIOCSIFHWADDR,
}

// What it writes stays in sight where it wrote it, and so does what it takes of the host's disk: the host agent counts what the directory lists. QEMU
// removes what might be in the place of a socket before it makes one: nothing is there to be removed.
var (
	removals  = []uint32{unix.SYS_UNLINK, unix.SYS_UNLINKAT, unix.SYS_RMDIR}
	renamings = []uint32{unix.SYS_RENAME, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2}
)

// O_TMPFILE without O_DIRECTORY, which is a part of it.
const nameless = unix.O_TMPFILE &^ unix.O_DIRECTORY

const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// Qemu is the filter of a QEMU that starts with `-sandbox on`, which adds that it starts nothing. With `notify` a listener is asked about each
// opening of a file with O_RDWR and no other flag, and once it is closed there are none. QEMU opens a memory file that way; disks, which it opens
// again in the course of its life, it opens with O_CLOEXEC.
func Qemu(notify bool) *Filter {
	f := newFilter()
	for _, call := range refused {
		f.on(call, verdict(errno(unix.EPERM)))
	}
	for _, call := range removals {
		f.on(call, verdict(errno(unix.ENOENT)))
	}
	for _, call := range renamings {
		f.on(call, verdict(errno(unix.EPERM)))
	}
	for _, call := range unseen {
		f.on(call, verdict(errno(unix.ENOSYS)))
	}
	f.unlessArgument(unix.SYS_SOCKET, 0, unix.AF_UNIX, errno(unix.EAFNOSUPPORT))
	f.unlessArgument(unix.SYS_SOCKETPAIR, 0, unix.AF_UNIX, errno(unix.EAFNOSUPPORT))
	f.ifBits(unix.SYS_CLONE, 0, newNamespaces, errno(unix.EPERM))
	f.ifOneOf(unix.SYS_IOCTL, 1, refusedControls, errno(unix.EPERM))
	f.notifies = notify
	f.opening(unix.SYS_OPEN, 1, notify)
	f.opening(unix.SYS_OPENAT, 2, notify)
	return f
}

// opening refuses a file without a name, and asks about one that is opened for reading and writing.
func (f *Filter) opening(call, index uint32, ask bool) {
	then := []unix.SockFilter{
		loadArgument(index),
		instruction(unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, nameless, 0, 1), verdict(errno(unix.EPERM)),
	}
	if ask {
		then = append(then, instruction(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, unix.O_RDWR, 0, 1), verdict(unix.SECCOMP_RET_USER_NOTIF))
	}
	f.on(call, append(then, verdict(unix.SECCOMP_RET_ALLOW))...)
}
