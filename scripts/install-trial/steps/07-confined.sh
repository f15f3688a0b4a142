# Its VMM is confined by control groups of version 2
pid=$(vmm_pid) uid=$(vmm_uid) group=$(group)
cat "/proc/$pid/cgroup" "$group"/{memory.max,memory.swap.max,memory.oom.group,cpu.max,cpu.weight,pids.max}
[ "$(cat "/proc/$pid/cgroup")" = "0::/fuse/vmm-$uid" ] || fail 'it is in another control group'
case $(cat "$group/memory.max") in # under KVM, emulated
  $(((512 + 256) * 1024 * 1024)) | $(((512 + 448) * 1024 * 1024))) ;;
  *) fail 'its memory is not what the page on configuration says' ;;
esac
[ "$(cat "$group/cpu.max")" = '150000 100000' ]
[ "$(cat "$group/pids.max")" = 97 ]
[ "$(cat "$group/memory.oom.group")" = 1 ]
total=$(($(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo) * 1024))
[ "$(cat /sys/fs/cgroup/fuse/memory.max)" -le $((total * 9 / 10)) ] || fail 'all VMs together may take everything'
[ "$(status "$pid" Uid)" = "$uid	$uid	$uid	$uid" ]
[ "$(status "$pid" NoNewPrivs) $(status "$pid" Seccomp)" = '1 2' ]
for set in CapInh CapPrm CapEff CapBnd CapAmb; do [ "$(status "$pid" $set)" = 0000000000000000 ]; done
for kind in mnt pid ipc uts net; do [ "$(readlink "/proc/$pid/ns/$kind")" != "$(readlink "/proc/1/ns/$kind")" ] || fail "it shares its $kind namespace"; done
note "user $uid, memory.max $(cat "$group/memory.max"), cpu.max $(cat "$group/cpu.max"), pids.max $(cat "$group/pids.max")"
