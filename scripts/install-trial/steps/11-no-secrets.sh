# No secret is in the journal or in a process list
check() { ! grep -qF -- "$2" "$3" || fail "$1 is in $3"; }
journalctl --no-pager -o verbose > /tmp/journal
ps -eo args > /tmp/processes
systemctl show fuse-orchestrator fuse-host-agent > /tmp/units
for file in /tmp/journal /tmp/processes /tmp/units; do
  check 'the master token' "$(cat /etc/fuse/master-token)" $file
  check 'the encryption key' "$(cat /etc/fuse/encryption-key)" $file
  check 'the password of the database' "$(sed -n 's#.*://fuse:\(.*\)@.*#\1#p' /etc/fuse/orchestrator.env)" $file
  check 'the join token' "$(sed -n 's/^FUSE_JOIN_TOKEN=//p' /etc/fuse/host-agent.env)" $file
  check 'the token of the host agent' "$(cat /var/lib/fuse/host/token)" $file
done
# The S3 server's own unit is the trial's, and holds its key.
journalctl --no-pager -o verbose -u fuse-orchestrator -u fuse-host-agent > /tmp/ours
check 'the key of the object store' trial-s3-secret /tmp/ours
[ "$(journalctl -q --no-pager -p err -u fuse-orchestrator -u fuse-host-agent | wc -l)" = 0 ] || journalctl -q --no-pager -p err -u fuse-orchestrator -u fuse-host-agent
note "$(wc -l < /tmp/ours) lines of the journal read"
