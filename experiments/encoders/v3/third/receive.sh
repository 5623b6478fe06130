#!/usr/bin/env bash
# receive.sh CHUNK | wait SECONDS; LEFT=SECONDS: training ends that long from now
set -euo pipefail
home=${V3_HOME:-/tmp/v3}
mkdir -p "$home/in" "$home/out"
[ -n "${LEFT:-}" ] && echo $(($(date +%s) + LEFT)) > "$home/until"
if [ "$1" = wait ]; then
  [ -f "${CARRY:-.carry}/code/soup.py" ] && cp "${CARRY:-.carry}/code/soup.py" "$home/"
  until=$(($(date +%s) + $2))
  while [ "$(date +%s)" -lt "$until" ] && [ ! -f "$home/ended" ]; do sleep 1; done
  cd "$home"
  tail -n ${LINES_SHOWN:-70} log
  if [ -f ended ] || [ -n "${GET:-}" ]; then
    tar czf "$OUT/small.tar.gz" log assemble.log $(ls out/*.json out/*.jsonl out/*/about.json 2> /dev/null)
    for name in a b best; do
      for part in out/$name/student.safetensors.*; do
        [ -f "$part" ] && cp "$part" "$OUT/$name.$(basename "$part")"
      done
    done
    ls -la $OUT
  fi
  [ -f ended ] && echo "THE STAGES HAVE ENDED"
  exit 0
fi
[ -f "$CARRY/code/soup.py" ] && cp "$CARRY/code/soup.py" "$CARRY/code/receive.sh" "$home/"
cp -r "$CARRY/$1/." "$home/in/"
if [ ! -f "$home/begun" ]; then
  date +%s > "$home/begun"
  cp $CARRY/code/* "$home/"
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
