#!/bin/sh
# Start this device. SERVER is where it reaches the server, host:port. ALLOW is what it may send besides updates:
# losses, gradients, labels, separated by commas.
set -eu
cd "$(dirname "$0")"
export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
export FLWR_SUPEREXEC_TASK_POLL_INTERVAL=0.2
export FLWR_HOME="$PWD/flower"
umask 077
exec flower-supernode --superlink "${SERVER:-127.0.0.1:@PORT@}" --root-certificates ca.crt \
  --auth-supernode-private-key device.key --host 127.0.0.1 --port "${DEVICE_PORT:-@DEVICE_PORT@}" \
  --node-config "device=@DEVICE@ state=\"$PWD/state\" allow=\"${ALLOW:-losses}\""
