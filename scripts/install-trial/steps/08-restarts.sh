# The VM outlives a restart, kill -9 and a stop of the host agent
fuse environment exec fuse-one -- sh -c 'echo here > /workspace/mark; cat /proc/sys/kernel/random/boot_id > /workspace/boot'
vmm=$(vmm_pid)
same() {
  within 180 fuse environment exec fuse-one -- sh -c 'grep -q here /workspace/mark && diff /workspace/boot /proc/sys/kernel/random/boot_id' || fail "the VM is not as it was after $1"
  [ "$(vmm_pid)" = "$vmm" ] || fail "the VMM is another one after $1"
}
before=$(main_pid fuse-host-agent)
systemctl restart fuse-host-agent
[ "$(main_pid fuse-host-agent)" != "$before" ]
same 'a restart'
kill -9 "$(main_pid fuse-host-agent)"
within 60 systemctl is-active fuse-host-agent
same 'kill -9'
[ "$(systemctl show --property NRestarts --value fuse-host-agent)" = 1 ] || fail 'restarted more than once'
from=$(date +%s%N)
systemctl stop fuse-host-agent
took=$((($(date +%s%N) - from) / 1000000))
[ "$(systemctl show --property Result --value fuse-host-agent)" = success ] || fail "its stop ended as $(systemctl show --property Result --value fuse-host-agent)"
[ -d "/proc/$vmm" ] || fail 'the stop ended the VM'
systemctl start fuse-host-agent
same 'a stop'
from=$(date +%s%N)
systemctl restart fuse-orchestrator
both="stops of the host agent took $took ms, a restart of the orchestrator $((($(date +%s%N) - from) / 1000000)) ms"
within 120 curl -sf http://127.0.0.1:8080/ready
same 'a restart of the orchestrator'
kill -9 "$(main_pid fuse-orchestrator)"
within 120 curl -sf http://127.0.0.1:8080/ready
same 'kill -9 of the orchestrator'
note "$both"
