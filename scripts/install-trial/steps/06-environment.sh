# An environment: a VM in the VM, and a command in it
SECONDS=0
fuse environment create --task-id one --max-runtime 4h
took=$SECONDS
SECONDS=0
[ "$(fuse environment exec fuse-one -- sh -c 'echo from the guest; cat /proc/1/comm')" = "$(printf 'from the guest\ninit')" ]
accelerator=$(journalctl -u fuse-host-agent | grep -o '"accelerator":"[a-z]*"' | tail -n 1)
note "create $took s, exec $SECONDS s, $accelerator"
