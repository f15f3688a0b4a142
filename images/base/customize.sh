#!/bin/sh
# Runs on the host at the end of the image's making, with the root file system in $1. Leaves nothing in it that differs
# between two VMs of this image, and nothing that only the making needed.
set -eu
root=$1

rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/* "$root"/var/cache/debconf/*-old "$root"/var/lib/dpkg/*-old
rm -rf "$root"/var/log/* "$root"/var/tmp/*
rm -f "$root"/etc/apt/apt.conf.d/99mmdebstrap

# The machine's own names, filled in by the guest agent.
: >"$root/etc/machine-id"
rm -f "$root/var/lib/dbus/machine-id"
echo fuse >"$root/etc/hostname"
: >"$root/etc/resolv.conf"
cat >"$root/etc/hosts" <<'EOF'
127.0.0.1 localhost
::1 localhost ip6-localhost ip6-loopback
EOF
chmod 644 "$root/etc/machine-id" "$root/etc/hostname" "$root/etc/resolv.conf" "$root/etc/hosts"

mkdir -p "$root/workspace"
# A VM is what a virtual environment would be: pip may install into it.
rm -f "$root"/usr/lib/python3*/EXTERNALLY-MANAGED
# vim-tiny is only known as vi.
ln -s vim.tiny "$root/usr/bin/vim"
