# The orchestrator, as docs/install-orchestrator.md says
# 2. A database, and what is secret. (The page asks for the password at the terminal.)
sudo -u postgres createuser fuse && sudo -u postgres psql -q <<<"alter user fuse password 'trial-db-secret'" && sudo -u postgres createdb --owner fuse fuse
sudo install -d -m 0700 /etc/fuse
sudo sh -c 'umask 077; openssl rand -hex 32 > /etc/fuse/master-token; openssl rand -hex 32 > /etc/fuse/encryption-key'
# 3. Its environment.
umask 077
cat > /etc/fuse/orchestrator.env <<'ENV'
DATABASE_URL=postgresql://fuse:trial-db-secret@127.0.0.1/fuse
S3_BUCKET=fuse
S3_ENDPOINT=http://10.0.2.15:9000
S3_ACCESS_KEY_ID=trial-access
S3_SECRET_ACCESS_KEY=trial-s3-secret
ORCH_PUBLIC_URL=http://10.0.2.15:8080
ENV
# 4. The service.
sudo cp /opt/fuse/packaging/systemd/fuse-orchestrator.service /etc/systemd/system/
sudo systemctl enable --now fuse-orchestrator
within 120 curl -sf http://127.0.0.1:8080/ready
systemctl is-active --quiet fuse-orchestrator
[ "$(systemctl show --property NRestarts --value fuse-orchestrator)" = 0 ] || fail 'it was restarted'
pid=$(main_pid fuse-orchestrator)
[ "$(status "$pid" Uid | cut -f 1)" != 0 ] || fail 'it runs as root'
[ "$(status "$pid" NoNewPrivs) $(status "$pid" Seccomp) $(status "$pid" CapBnd)" = '1 2 0000000000000000' ] || fail 'it is not confined'
note "runs as user $(ps -o user= -p "$pid")"
