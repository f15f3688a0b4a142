# Set-up and doctor, as docs/install-host-agent.md says
cd /opt/fuse
# 2. Kernel and images, and what the machine lacks.
sudo FUSE_HOME=/var/lib/fuse npm run setup
doctor=$(sudo FUSE_HOME=/var/lib/fuse node apps/host-agent/bin/fuse-doctor.js) || true
echo "$doctor"
grep -iq 'control groups.*version 2\|cgroup v2' <<<"$doctor"
grep -q '/var/lib/fuse/assets/' /var/lib/fuse/assets/manifest.json
