#!/usr/bin/env bash
# liebig-mini v2 on one GPU, part by part: texts (processors only), teach, train, dev, test.
# HOME_V2 holds data/, models/{minilm,bge-small,e5-small} and, unless the recipe is to make it, tokenizer/; stages go to
# HOME_V2/runs, what is kept to OUT. PYTHON and LAYERS (those of models/minilm that the start keeps) may be set; words
# after the part override the recipe.
set -euo pipefail
part=$1
shift
python=${PYTHON:-python}
home=${HOME_V2:-runs/v2}
runs=$home/runs
out=${OUT:-$home/out}
here=$(cd "$(dirname "$0")" && pwd)
encoders=$(dirname "$here")
recipe=${RECIPE:-$encoders/../../recipes/encoders/mini-v2.toml}
data=$home/data
models=$home/models

words=(
  "stages.words.paths=[$data/wiki/articles-0.jsonl.xz,$data/wiki/articles-1.jsonl.xz,$data/novels]"
  "stages.wiki.paths=[$data/wiki]" "stages.squad.paths=[$data/squad]" "stages.nq.paths=[$data/nq]"
  "stages.minilm.model=$models/minilm" "stages.bge.model=$models/bge-small" "stages.e5.model=$models/e5-small"
  "stages.first.model.path=$models/v2-start"
)
if [ -d "$home/tokenizer" ]; then
  words+=("stages.text_store.tokenizer=$home/tokenizer")
fi
tokenizer=$home/tokenizer
[ -d "$tokenizer" ] || tokenizer=$runs/tokenizer

run() {
  "$python" "$encoders/run.py" "$recipe" --out "$runs" "$@"
}

say() {
  echo "[$(date +%T)] $*"
}

# Wait for all background jobs; fail if one of them did.
all() {
  local failed=0
  for job in "$@"; do
    wait "$job" || failed=1
  done
  return $failed
}

mkdir -p "$runs" "$out"
case $part in
texts)
  run --stages squad nq --set "${words[@]}" "$@"
  if [ -d "$home/tokenizer" ]; then
    run --stages wiki texts --set "${words[@]}" "$@"
  else
    run --stages wiki texts --beside words tokenizer --set "${words[@]}" "$@"
  fi
  wc -l "$runs/texts/passages.jsonl"
  run --stages text_store --set "${words[@]}" "$@"
  say texts done
  touch "$runs/texts.done"
  ;;
teach)
  "$python" "$here/start.py" "$models/minilm" "$tokenizer" "$runs/texts/passages.jsonl" "$models/v2-start" \
    --layers ${LAYERS:-0 2 4 5} > "$out/start.txt" 2>&1 &
  jobs_=($!)
  for teacher in bge e5 minilm; do
    run --stages $teacher --set "${words[@]}" "$@" > "$out/$teacher.txt" 2>&1 &
    jobs_+=($!)
  done
  "$python" "$here/weigh.py" --data "$data" --texts "$runs/texts/passages.jsonl" --out "$runs/weights" \
    minilm="$models/minilm" bge="$models/bge-small" e5="$models/e5-small" > "$out/weigh.txt" 2>&1 &
  jobs_+=($!)
  status=0
  all "${jobs_[@]}" || status=1
  for name in start bge e5 minilm weigh; do
    say $name
    tail -n 12 "$out/$name.txt"
  done
  cp "$runs"/weights/*.json "$out/" || true
  say "teachers done, status $status"
  exit $status
  ;;
train)
  if [ -f "$runs/weights/words.txt" ]; then
    mapfile -t -O "${#words[@]}" words < "$runs/weights/words.txt"
  fi
  run --stages first model --set "${words[@]}" "$@"
  say trained
  cp "$runs/model/log.jsonl" "$out/model.jsonl"
  cp "$runs/model/timing.jsonl" "$runs/model/manifest.json" "$out/" || true
  "$python" "$encoders/pack.py" "$runs" "$home/v2" --stages first model --name "liebig-mini v2" --recipe recipes/encoders/mini-v2.toml
  "$python" "$here/int8.py" "$home/v2" "$home/v2-int8"
  tar cf - -C "$home" v2 -C "$runs/model/model" 2_Dense | split -b 15000000 - "$out/v2.tar."
  say packed
  ;;
dev)
  "$python" "$encoders/evaluate.py" --later --data "$data" --out "$runs/dev" \
    v2="$home/v2" v2-int8="$home/v2-int8" v1=liebig:mini-v1 minilm="$models/minilm"
  tar czf "$out/dev.tar.gz" -C "$runs/dev" results.json queries.jsonl.xz
  "$python" "$here/means.py" "$runs/dev/results.json"
  ;;
test)
  "$python" "$encoders/evaluate.py" --later --data "$data" --split test --out "$runs/test" v2="$home/v2-int8" v1=liebig:mini-v1 minilm="$models/minilm"
  for model in "$home/v2-int8" liebig:mini-v1 "$models/minilm"; do
    "$python" -m liebig evaluate "$model" "$data/stsb" --out "$runs/stsb-$(basename "$model")" 2>&1 | tail -n 6
  done
  tar czf "$out/test.tar.gz" -C "$runs/test" results.json queries.jsonl.xz
  "$python" "$here/means.py" "$runs/test/results.json"
  ;;
*)
  echo "the parts are texts, teach, train, dev and test" >&2
  exit 2
  ;;
esac
