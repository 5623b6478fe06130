#!/usr/bin/env bash
# On the machine with the GPU, in the repository. The stages run on between the calls.
#   receive.sh CHUNK          takes .carry/CHUNK in; the first one starts the stages (LAST=SECONDS ends training)
#   receive.sh wait SECONDS   waits for the stages to end, and copies what is worth keeping to $OUT (4 files, 20 MB)
set -euo pipefail
home=${V3_HOME:-/tmp/v3}
mkdir -p "$home/in" "$home/out"
if [ "$1" = wait ]; then
  until=$(($(date +%s) + $2))
  while [ "$(date +%s)" -lt "$until" ] && [ ! -f "$home/ended" ]; do sleep 1; done
  cd "$home"
  tar czf "$OUT/small.tar.gz" log assemble.log $(ls out/*.json out/*.jsonl out/*/about.json 2> /dev/null)
  for part in out/*/student.safetensors.*; do
    [ -f "$part" ] && cp "$part" "$OUT/$(basename "$part")"
  done
  [ -f targets/about.pt ] && cp targets/about.pt "$OUT/"
  tail -n 60 log
  [ -f ended ] && echo "THE STAGES HAVE ENDED"
  exit 0
fi
cp -r ".carry/$1/." "$home/in/"
if [ ! -f "$home/begun" ]; then
  date +%s > "$home/begun"
  cp .carry/code/* "$home/"
  cp "$home/files.json" "$home/in/"
  cp -r src/liebig/encoders/mini-v3 "$home/start"
  nvidia-smi --query-gpu=name,memory.total --format=csv,noheader || true
  setsid nohup bash "$home/stages.sh" > "$home/log" 2>&1 < /dev/null &
  sleep 1
fi
du -sm "$home/in" | cut -f1
date +%T
tail -n 6 "$home/log" || true
tail -n 1 "$home/assemble.log" || true
