#!/usr/bin/env bash
# All stages of mini-v3 one after the other, each waiting for what it reads; `receive.sh` starts this.
# LAST: seconds after the beginning at which training ends. PYTHON, FEW, TRIAL (options of `train`) are for a trial.
set -uo pipefail
home=${V3_HOME:-/tmp/v3}
until=$(($(cat "$home/begun") + ${LAST:-1200}))
python=${PYTHON:-python3}
export PYTHONUNBUFFERED=1
trap 'touch "$home/ended"' EXIT
$python "$home/texts.py" --home "$home" ${ROWS:-} > "$home/assemble.log" 2>&1 &
train="$python $home/train.py train --home $home --until $until ${FEW:-} ${TRIAL:-}"
$train || $train --resume --no-compile || exit 1
tail -n 14 "$home/assemble.log"
for split in dev test; do
  $python "$home/train.py" evaluate --home "$home" --split $split ${FEW:-}
done
