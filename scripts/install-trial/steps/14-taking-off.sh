# Taking it off, as the pages say, leaves nothing
fuse hosts drain trial
for id in $(fuse environment list --all-pages -o json | sed -n 's/^ *"id": "\(fuse-[^"]*\)".*/\1/p'); do fuse environment destroy "$id" --yes; done
fuse hosts remove trial --yes
sudo systemctl disable --now fuse-host-agent
left=$(find /sys/fs/cgroup -maxdepth 1 -name 'fuse-gateway*'; ip netns list; ps -eo user,comm | grep -E '^8(69999|7[0-9]{4}) |fuse-jailer|fuse-gateway' || true)
[ -z "$left" ] || fail "the host agent has left $left"
sudo rm -r /etc/systemd/system/fuse-host-agent.service /etc/fuse/host-agent.env /var/lib/fuse /run/fuse
sudo systemctl daemon-reload
sudo rmdir /sys/fs/cgroup/fuse
sudo systemctl disable --now fuse-orchestrator
sudo rm -r /etc/systemd/system/fuse-orchestrator.service /etc/fuse/orchestrator.env /etc/fuse/master-token /etc/fuse/encryption-key /opt/fuse
rm -r /etc/systemd/system/fuse-orchestrator.service.d # of the part on TLS
sudo systemctl daemon-reload
cd / && sudo -u postgres dropdb fuse && sudo -u postgres dropuser fuse
ls /etc/fuse
left=$(systemctl list-unit-files 'fuse-*' --no-legend; systemctl list-units --all 'fuse-*' --no-legend; find / -xdev -name '*fuse-*' -newer /etc/fuse/hosts-ca.key -not -path '/proc/*' -not -path '/var/log/*'; ls -d /run/*fuse* /var/lib/*fuse* 2>/dev/null; nft list ruleset || true)
[ -z "$left" ] || fail "this is left: $left"
