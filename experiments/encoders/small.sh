#!/usr/bin/env bash
# liebig-small on one GPU: `small.sh all`, or in three calls of under ten minutes each, `start`, `unsupervised`, `finetune`.
# PYTHON, DATA, TEACHER (for comparison), RUNS, OPEN (what open.py and cuts.py write) and OUT may be set; words after
# the part override the recipe.
set -euo pipefail
part=$1
shift
python=${PYTHON:-python}
runs=${RUNS:-runs/small}
open=${OPEN:-runs/open}
out=${OUT:-$runs/out}
data=${DATA:-data}
teacher=${TEACHER:-models/all-MiniLM-L6-v2}
here=$(dirname "$0")
recipe=${RECIPE:-$here/../../recipes/encoders/small.toml}

words=(
  "stages.collection.paths=[$data/wiki,$data/novels]" "stages.wiki.paths=[$data/wiki]"
  "stages.open.paths=[$open/train]" "stages.cuts.paths=[$open/cuts]" "$@"
)

run() {
  "$python" "$here/run.py" "$recipe" --out "$runs" "$@" --set "${words[@]}"
}

judge() {
  "$python" "$here/evaluate.py" --data "$open" --sets squad-wiki --measures RR@10 R@100 --out "$runs/$1-squad" "${@:2}"
  "$python" "$here/evaluate.py" --data "$data" --out "$runs/$1" "${@:2}"
  for set in "$1" "$1-squad"; do
    mkdir -p "$out/$set"
    cp "$runs/$set"/results.* "$runs/$set/queries.jsonl.xz" "$out/$set/"
  done
}

questions() {
  if [ ! -f "$open/train/qrels/dev.tsv" ]; then "$python" "$here/open.py" "$data" "$open"; fi
  if [ ! -f "$open/cuts/qrels/cuts.tsv" ]; then "$python" "$here/cuts.py" "$open/wiki" "$open/cuts"; fi
}

mkdir -p "$out/logs"
case $part in
all)
  for each in start unsupervised finetune; do bash "$0" "$each" "$@"; done
  ;;
start)
  questions >"$out/logs/questions.txt" 2>&1 &
  run --stages collection tokenizer --beside wiki
  run --stages store start --beside wiki_store
  cp "$runs/start/log.jsonl" "$out/logs/start.jsonl"
  wait $!
  ;;
unsupervised)
  run --stages unsupervised --beside cuts
  run --stages asked --beside open bm25 bm25-run bm25-negatives
  for stage in unsupervised asked; do cp "$runs/$stage/log.jsonl" "$out/logs/$stage.jsonl"; done
  judge zero-shot mlm="$runs/start/model" contrast="$runs/unsupervised/model" cuts="$runs/asked/model" teacher="$teacher"
  ;;
finetune)
  run --stages retriever-1 vectors-1 run-1 mined-negatives retriever-2
  cp "$runs/retriever-2/log.jsonl" "$out/logs/retriever-2.jsonl"
  judge fine-tuned first="$runs/retriever-1/model" second="$runs/retriever-2/model"
  ;;
*)
  echo "the parts are start, unsupervised and finetune, or all" >&2
  exit 2
  ;;
esac
