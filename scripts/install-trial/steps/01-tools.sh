# Node.js, and what set-up would fetch, where the machine looks for them
cp /opt/node/node /usr/bin/node
mkdir -p /usr/lib/node_modules
ln -s /opt/node/npm /usr/lib/node_modules/npm
ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/bin/npm
ln -s ../lib/node_modules/npm/bin/npx-cli.js /usr/bin/npx
ln -s /opt/go /usr/local/go
install -d -m 0700 /var/lib/fuse
cp -a --sparse=always /opt/made/assets /var/lib/fuse/
grep -q '^cgroup2 /sys/fs/cgroup ' /proc/mounts
note "node $(node --version), $(systemctl --version | head -n 1), $(uname -r), cgroup v2: $(cat /sys/fs/cgroup/cgroup.controllers)"
