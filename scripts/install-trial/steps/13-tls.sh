# TLS both ways between orchestrator and host agent, as the pages say
cd /etc/fuse
umask 077
authority() { openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=$1" -keyout "$1.key" -out "$1.crt" 2>/dev/null; }
signed() { # name, authority, address
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -keyout "$1.key" -out "$1.csr" 2>/dev/null
  openssl x509 -req -in "$1.csr" -CA "$2.crt" -CAkey "$2.key" -CAcreateserial -days 2 -extfile <(echo "subjectAltName=$3") -out "$1.crt" 2>/dev/null
}
authority hosts-ca; authority orchestrators-ca
signed host hosts-ca IP:10.0.2.15
signed orchestrator orchestrators-ca DNS:orchestrator
cat >> host-agent.env <<'ENV'
FUSE_HOST_TLS_CERT=/etc/fuse/host.crt
FUSE_HOST_TLS_KEY=/etc/fuse/host.key
FUSE_HOST_TLS_CLIENT_CA=/etc/fuse/orchestrators-ca.crt
FUSE_ADVERTISE_URL=https://10.0.2.15:8090
ENV
mkdir -p /etc/systemd/system/fuse-orchestrator.service.d
cat > /etc/systemd/system/fuse-orchestrator.service.d/override.conf <<'UNIT'
[Service]
LoadCredential=hosts-ca.crt:/etc/fuse/hosts-ca.crt
LoadCredential=client.crt:/etc/fuse/orchestrator.crt
LoadCredential=client.key:/etc/fuse/orchestrator.key
Environment=ORCH_HOST_CA=%d/hosts-ca.crt
Environment=ORCH_HOST_CLIENT_CERT=%d/client.crt
Environment=ORCH_HOST_CLIENT_KEY=%d/client.key
UNIT
systemctl daemon-reload
systemctl restart fuse-orchestrator fuse-host-agent
within 120 curl -sf http://127.0.0.1:8080/ready
within 120 sh -c "node /opt/fuse/apps/cli/bin/fuse.js hosts get trial -o json | grep -q '\"https://10.0.2.15:8090\"'"
! curl -sk --max-time 20 https://10.0.2.15:8090/ || fail 'the host agent hears whoever has no certificate'
fuse environment create --task-id tls
[ "$(fuse environment exec fuse-tls -- echo over TLS)" = 'over TLS' ]
fuse environment destroy fuse-tls --yes
