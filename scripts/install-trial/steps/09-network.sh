# A VM with a network: nftables, a card, a refusal that is recorded
fuse environment create --task-id net --egress internet
fuse environment exec fuse-net -- sh -c 'ip -brief address show; cat /etc/resolv.conf' | tee /tmp/card
grep -qE '^(eth|ens|enp)[0-9a-z]* +U' /tmp/card
! fuse environment exec fuse-net -- curl -s --max-time 60 http://10.0.2.15:8090/ || fail 'it reaches the host agent'
within 60 sh -c "node /opt/fuse/apps/cli/bin/fuse.js environment network fuse-net | grep 10.0.2.15"
fuse environment network fuse-net
gateway=$(cat /sys/fs/cgroup/fuse-gateway-*/cgroup.procs | head -n 1)
[ "$(status "$gateway" Uid | cut -f 1)" = 869999 ]
[ "$(cat /sys/fs/cgroup/fuse-gateway-*/memory.max)" = $((2 * 1024 * 1024 * 1024)) ]
systemctl restart fuse-host-agent
within 120 fuse environment exec fuse-net -- true
[ "$(cat /sys/fs/cgroup/fuse-gateway-*/cgroup.procs | head -n 1)" = "$gateway" ] || fail 'the gateway is another one after a restart'
fuse environment destroy fuse-net --yes
note "its card is $(awk '/^e/ { print $1, $3 }' /tmp/card), a refusal is recorded, the gateway outlived a restart"
