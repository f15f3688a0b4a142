package paths

import "golang.org/x/sys/unix"

// pseudoTypes are file systems whose files say nothing true about their size: their bytes are made as they are read.
var pseudoTypes = map[int64]bool{
	unix.PROC_SUPER_MAGIC: true, unix.SYSFS_MAGIC: true, unix.CGROUP2_SUPER_MAGIC: true, unix.CGROUP_SUPER_MAGIC: true,
	unix.DEBUGFS_MAGIC: true, unix.TRACEFS_MAGIC: true, unix.SECURITYFS_MAGIC: true, unix.BPF_FS_MAGIC: true,
	unix.EFIVARFS_MAGIC: true, unix.BINFMTFS_MAGIC: true,
}

// Pseudo tells whether an open file is of such a file system.
func Pseudo(file int) bool {
	var info unix.Statfs_t
	return unix.Fstatfs(file, &info) == nil && pseudoTypes[int64(info.Type)]
}
