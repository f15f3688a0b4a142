# What systemd-analyze makes of the units
for unit in fuse-orchestrator fuse-host-agent; do
  systemd-analyze --no-pager security $unit.service | tail -n 1 | sed "s/^→ //; s/^/$unit /" | tee -a /tmp/figures
done
note "$(cat /tmp/figures | tr '\n' ';' )"
