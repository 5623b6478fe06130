#!/usr/bin/env bash
set -uo pipefail
home=${V3_HOME:-/tmp/v3}
python=${PYTHON:-python3}
export PYTHONUNBUFFERED=1
trap 'touch "$home/ended"' EXIT
$python "$home/texts.py" --home "$home" ${ROWS:-} > "$home/assemble.log" 2>&1 &
train="$python $home/train.py train --home $home ${FEW:-} ${TRIAL:-}"
$train || $train --resume --no-compile
tail -n 14 "$home/assemble.log"
$python "$home/soup.py" --home "$home" ${FEW:-} ${SOUP:-}
