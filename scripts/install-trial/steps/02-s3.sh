# An S3 server
mkdir -p /srv/s3/fuse
systemd-run --quiet --unit trial-s3 --setenv=ROOT_ACCESS_KEY_ID=trial-access --setenv=ROOT_SECRET_ACCESS_KEY=trial-s3-secret \
  /opt/tools/versitygw --port 10.0.2.15:9000 --region us-east-1 --quiet --keep-alive posix /srv/s3
within 60 curl -s http://10.0.2.15:9000
