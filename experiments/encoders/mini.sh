#!/usr/bin/env bash
# liebig-mini on one GPU, in two calls of under ten minutes each: `mini.sh start`, then `mini.sh distil`.
# PYTHON, DATA, TEACHER (the teacher's folder), RUNS (where stages go) and OUT (what is kept) may be set; words after
# the part override the recipe.
set -euo pipefail
part=$1
shift
python=${PYTHON:-python}
runs=${RUNS:-runs/mini}
out=${OUT:-$runs/out}
data=${DATA:-data}
teacher=${TEACHER:-models/all-MiniLM-L6-v2}
here=$(dirname "$0")
recipe=${RECIPE:-$here/../../recipes/encoders/mini.toml}

words=(
  "stages.collection.paths=[$data/wiki,$data/novels]" "stages.wiki.paths=[$data/wiki]"
  "stages.squad.paths=[$data/squad]" "stages.nq.paths=[$data/nq]" "stages.teacher.model=$teacher" "$@"
)

run() {
  "$python" "$here/run.py" "$recipe" --out "$runs" "$@" --set "${words[@]}"
}

mkdir -p "$out"
case $part in
start)
  run --stages collection tokenizer --beside wiki squad nq
  run --stages store start --beside texts text_store
  "$python" "$here/pack.py" "$runs" "$out/start" --stages start
  mkdir -p "$out/logs"
  cp "$runs/start/log.jsonl" "$out/logs/start.jsonl"
  ;;
distil)
  run --stages teacher model
  mkdir -p "$out/logs"
  cp "$runs/model/log.jsonl" "$out/logs/model.jsonl"
  "$python" "$here/pack.py" "$runs" "$out/mini" --name liebig-mini
  "$python" "$here/evaluate.py" --data "$data" --out "$runs/dev" \
    mlm="$runs/start/model" mini="$out/mini" teacher="$teacher"
  mkdir -p "$out/dev"
  cp "$runs"/dev/results.* "$runs/dev/queries.jsonl.xz" "$out/dev/"
  "$python" "$here/pack.py" "$runs" "$out/mini" --name liebig-mini --results "$runs/dev"
  ;;
*)
  echo "the parts are start and distil" >&2
  exit 2
  ;;
esac
