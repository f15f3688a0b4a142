# Before each step, inside the trial machine, as root.
set -euxo pipefail
export HOME=/root
fuse() { node /opt/fuse/apps/cli/bin/fuse.js "$@"; }
note() { echo "note: $*"; }
fail() { echo "FAILED: $*" >&2; exit 1; }
# Until a command succeeds, or for so many seconds.
within() { local until=$((SECONDS + $1)); shift; until "$@" >/dev/null 2>&1; do [ $SECONDS -lt $until ] || fail "never came true: $*"; sleep 1; done; }
main_pid() { systemctl show --property MainPID --value "$1"; }
# Of the one VM that runs. Under KVM a thread of the kernel's is in its group too.
vmm_uid() { sed 's/.*"uid":\([0-9]*\).*/\1/' /var/lib/fuse/host/vms/*/machine-*/cell.json; }
group() { echo "/sys/fs/cgroup/fuse/vmm-$(vmm_uid)"; }
vmm_pid() { local pid; while read -r pid; do ! readlink -q "/proc/$pid/exe" >/dev/null || echo "$pid"; done < "$(group)/cgroup.procs"; }
status() { sed -n "s/^$2:[[:space:]]*//p" "/proc/$1/status"; }
