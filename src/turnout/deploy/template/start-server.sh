#!/bin/sh
# Start the SuperLink on this machine and register the devices' keys. Stop it with Ctrl-C.
set -eu
cd "$(dirname "$0")"
export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
export FLWR_SUPEREXEC_TASK_POLL_INTERVAL=0.2
export FLWR_HOME="$PWD/flower"
umask 077
flower-superlink --host 127.0.0.1 --port @PORT@ --enable-supernode-auth --disable-runtime-dependency-installation \
  --ssl-ca-certfile certificates/ca.crt --ssl-certfile certificates/server.crt --ssl-keyfile certificates/server.key \
  --database flower/state.db &
link=$!
trap 'kill $link 2>/dev/null' INT TERM EXIT
for key in keys/device-*.pub; do
  name=$(basename "$key" .pub)
  [ -e "flower/$name.registered" ] && continue
  tries=0
  until flwr supernode register "$key" turnout --name "$name" >"flower/$name.log" 2>&1; do
    tries=$((tries + 1))
    if [ $tries -ge 60 ] || ! kill -0 $link 2>/dev/null; then cat "flower/$name.log" >&2; exit 1; fi
    sleep 0.5
  done
  : >"flower/$name.registered"
done
echo "The SuperLink is ready on 127.0.0.1:@PORT@."
wait $link
