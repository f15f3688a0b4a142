# The host agent joins, as docs/install-host-agent.md says
FUSE_TOKEN=$(cat /etc/fuse/master-token)
# 3. A join token.
answer=$(curl -sf http://10.0.2.15:8080/v1/host-join-tokens -H "Authorization: Bearer $FUSE_TOKEN" -d '{"uses":3,"region":"eu"}')
token=$(grep -o 'fuse_join_[A-Za-z0-9_-]*' <<<"$answer")
# 4. Its environment.
umask 077
cat > /etc/fuse/host-agent.env <<ENV
FUSE_HOST_LISTEN=10.0.2.15:8090
FUSE_ADVERTISE_URL=http://10.0.2.15:8090
FUSE_JOIN_URL=http://10.0.2.15:8080
FUSE_JOIN_TOKEN=$token
S3_BUCKET=fuse
S3_ENDPOINT=http://10.0.2.15:9000
S3_ACCESS_KEY_ID=trial-access
S3_SECRET_ACCESS_KEY=trial-s3-secret
ENV
# 5. The service.
sudo cp /opt/fuse/packaging/systemd/fuse-host-agent.service /etc/systemd/system/
sudo systemctl enable --now fuse-host-agent
within 120 sh -c "journalctl -u fuse-host-agent | grep 'joined the fleet'"
systemctl is-active --quiet fuse-host-agent
[ "$(systemctl show --property NRestarts --value fuse-host-agent)" = 0 ] || fail 'it was restarted'
FUSE_TOKEN=$FUSE_TOKEN fuse connect http://10.0.2.15:8080 --name trial --master
within 120 sh -c 'curl -sf http://127.0.0.1:8080/ready'
fuse hosts
[ "$(fuse hosts get trial -o json | grep -c '"region": "eu"')" -ge 1 ] || fail 'its region is not that of the join token'
