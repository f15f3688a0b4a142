#!/bin/sh
# Runs at the end of the trial machine's making, with its root file system in $1 and inside.mjs in $2.
set -eu
root=$1

echo trial >"$root/etc/hostname"
echo '127.0.0.1 localhost trial' >"$root/etc/hosts"
: >"$root/etc/machine-id"
printf '/dev/vda / ext4 noatime 0 1\n/dev/vdb /opt ext4 noatime 0 2\n' >"$root/etc/fstab"
rm -rf "$root"/var/cache/apt/*.bin "$root"/var/lib/apt/lists/*

cat >"$root/etc/systemd/network/trial.network" <<'UNIT'
[Match]
Type=ether
[Network]
Address=10.0.2.15/24
LinkLocalAddressing=no
UNIT

# What the steps of the trial are said to.
printf '%s' "$2" >"$root/usr/local/lib/trial-inside.mjs"
cat >"$root/etc/systemd/system/trial-inside.service" <<'UNIT'
[Unit]
After=multi-user.target
[Service]
ExecStart=/opt/node/node /usr/local/lib/trial-inside.mjs /dev/virtio-ports/trial
Environment=HOME=/root
[Install]
WantedBy=multi-user.target
UNIT

for unit in apt-daily.timer apt-daily-upgrade.timer fstrim.timer e2scrub_all.timer e2scrub_reap.service dpkg-db-backup.timer; do
  ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
systemctl --root="$root" enable -q systemd-networkd systemd-networkd-wait-online trial-inside
