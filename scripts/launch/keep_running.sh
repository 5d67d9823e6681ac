#!/usr/bin/env bash
# Keeps a command running on a host that no platform watches:
#   keep_running.sh PIDFILE FINAL MAX_RESTARTS PAUSE_SECONDS COMMAND [ARGUMENT...]
#
# Starts COMMAND again whenever it fails, which is how a run goes on from its last checkpoint after
# another host was lost. Leaves when it is done (0), when its status is one of FINAL ("1 2": faults
# that no repetition mends), after MAX_RESTARTS, and when it is itself sent SIGTERM, which it passes
# on and then waits for the checkpoint. Its own status is that of the last COMMAND.
set -uo pipefail
pidfile=$1 final=" 0 $2 " max_restarts=$3 pause=$4
shift 4

say() { printf '%s keep_running: %s\n' "$(date -u +%FT%TZ)" "$*"; }

child='' stopping=''
stop() {
  stopping=yes
  if [ -n "$child" ]; then kill -TERM "$child" 2>/dev/null; fi
}
trap stop TERM INT
echo $$ >"$pidfile"
trap 'rm -f "$pidfile"' EXIT

restarts=0
while true; do
  say "start $restarts of at most $max_restarts restarts: $*"
  "$@" &
  child=$!
  wait "$child"
  # A signal cuts `wait` short; the child is still saving then.
  while kill -0 "$child" 2>/dev/null; do wait "$child"; done
  wait "$child"
  status=$?
  child=''
  say "status $status"
  if [[ $final == *" $status "* || -n $stopping ]]; then exit "$status"; fi
  if [ "$restarts" -ge "$max_restarts" ]; then
    say "gave up after $restarts restarts; read the lines above"
    exit "$status"
  fi
  restarts=$((restarts + 1))
  # In the background, so that a signal need not wait for it.
  sleep "$pause" &
  wait $!
  if [ -n "$stopping" ]; then exit "$status"; fi
done
