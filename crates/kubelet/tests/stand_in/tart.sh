#!/bin/sh
# Tart's command line as the agent asks it. Every call is written to `calls`. A VM runs until
# somebody writes an exit code to its `halt`.
home=$(dirname "$0"); vms=$home/vms; mkdir -p "$vms"
echo "$*" >> "$home/calls"
if [ -e "$home/hang-$1" ]; then sleep 300 & echo $! >> "$home/sleepers"; wait; fi
if [ -e "$home/fail-$1" ]; then cat "$home/fail-$1" >&2; exit 1; fi
if [ -e "$home/child-$1" ]; then sleep 300 & echo '[]'; exit 0; fi
running() { [ -e "$vms/$1/pid" ] && kill -0 "$(cat "$vms/$1/pid")" 2>/dev/null; }
missing() { echo "the specified VM \"$1\" does not exist" >&2; exit 2; }
case $1 in
list)
  printf '['; comma=
  for vm in "$vms"/*/; do
    [ -d "$vm" ] || continue
    name=$(basename "$vm"); state=false; running "$name" && state=true
    printf '%s{"Source":"local","Name":"%s","Size":"1.5","Running":%s}' "$comma" "$name" "$state"
    comma=,
  done
  printf ']\n' ;;
clone) rm -rf "${vms:?}/$3"; mkdir "$vms/$3" ;;
set) [ -d "$vms/$2" ] || missing "$2" ;;
run)
  [ -d "$vms/$2" ] || missing "$2"
  echo $$ > "$vms/$2/pid.new"; mv "$vms/$2/pid.new" "$vms/$2/pid"
  trap 'echo "Stopping VM..."; exit 0' INT
  # It ends with the test's folder, so that nothing outlives the test.
  while [ ! -e "$vms/$2/halt" ]; do [ -d "$vms/$2" ] || exit 1; sleep 0.02; done
  [ ! -e "$vms/$2/words" ] || cat "$vms/$2/words"
  exit "$(cat "$vms/$2/halt")" ;;
stop)
  running "$2" || { echo "VM \"$2\" is not running" >&2; exit 2; }
  kill -KILL "$(cat "$vms/$2/pid")"
  while running "$2"; do sleep 0.02; done ;;
delete)
  [ -d "$vms/$2" ] || missing "$2"
  running "$2" && { echo "VM \"$2\" is running" >&2; exit 1; }
  rm -rf "${vms:?}/$2" ;;
ip)
  [ -d "$vms/$2" ] || missing "$2"
  [ -e "$vms/$2/ip" ] || { echo "no IP address found, is your VM running?" >&2; exit 1; }
  cat "$vms/$2/ip" ;;
esac
