#!/usr/bin/env bash
# All stages of mini-v3 one after the other, each waiting for what it reads; `receive.sh` starts this.
# LAST: seconds after the beginning at which training ends. PYTHON and MORE (further options) are for a trial.
set -uo pipefail
home=${V3_HOME:-/tmp/v3}
until=$(($(cat "$home/begun") + ${LAST:-1400}))
export PYTHONUNBUFFERED=1
run() {
  ${PYTHON:-python3} "$home/train.py" "$@" --home "$home" ${MORE:-}
}
trap 'touch "$home/ended"' EXIT
run assemble > "$home/assemble.log" 2>&1 &
run smoke || echo "smoke failed"
run teach || exit 1
tail -n 14 "$home/assemble.log"
# The weights of the teachers are known; `run weigh` chooses them again. START_FROM="--layers-of minilm" begins anew.
run train --until "$until" ${START_FROM:-} || run train --until "$until" --resume --no-compile || exit 1
run finish --seconds 40 || echo "finish failed"
run evaluate --split dev --teachers minilm
run evaluate --split test --teachers minilm
