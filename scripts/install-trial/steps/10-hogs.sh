# Limits are in force: processors, processes, memory
uid=$(vmm_uid) group=$(group)
joined() { sh -c 'echo $$ > "$0/cgroup.procs"; exec "$@"' "$group" "$@"; }
usage() { sed -n 's/^usage_usec //p' "$group/cpu.stat"; }
# Four loops beside the VMM get one and a half processors together.
for n in 1 2 3 4; do joined setpriv --reuid "$uid" --regid "$uid" --clear-groups timeout 12 sh -c 'while :; do :; done' & done
sleep 2; used=$(usage) from=$(date +%s%N); sleep 6; used=$(($(usage) - used)) passed=$((($(date +%s%N) - from) / 1000))
wait
share=$((100 * used / passed))
[ $share -le 165 ] || fail "it took $share % of a processor"
[ "$(sed -n 's/^nr_throttled //p' "$group/cpu.stat")" -gt 0 ] || fail 'it was never held back'
# Whoever forks and forks in its group comes to an end. The VMM stands still meanwhile: it would end if it were refused a thread for its disk.
vmm=$(vmm_pid)
kill -STOP "$vmm"
joined setpriv --reuid "$uid" --regid "$uid" --clear-groups timeout 5 bash -c 'for n in $(seq 300); do sleep 15 & done; wait' 2>/tmp/forks || true
pkill -KILL -u "$uid" sleep || true
kill -CONT "$vmm"
grep -q 'Resource temporarily unavailable\|retry' /tmp/forks || fail "forks went on: $(tail -n 1 /tmp/forks)"
refused=$(sed -n 's/^max //p' "$group/pids.events")
[ "$refused" -gt 0 ] || fail 'no fork was refused'
fuse environment exec fuse-one -- echo well
# Whoever takes too much memory (a last line that has no end) ends the group, and nothing else.
! joined timeout 120 tail -n 1 /dev/zero > /dev/null || fail 'it ended by itself'
within 180 sh -c "node /opt/fuse/apps/cli/bin/fuse.js environment get fuse-one 2>&1 | grep 'out of memory'"
within 30 test ! -e "$group"
systemctl is-active --quiet fuse-host-agent fuse-orchestrator
note "four loops took $share % of a processor, $refused forks refused, the memory hog ended its VM alone"
