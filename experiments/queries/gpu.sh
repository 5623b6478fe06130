#!/usr/bin/env bash
# The generator, its queries and its speed; README.md here says what has to be there before.
#     PARTS=.carry/flan OUT=results bash experiments/queries/gpu.sh [PHASE ...] [KEY=VALUE ...]
# Phases, all of them if none is named: prepare and join (no GPU), train, generate, bench, pack (no GPU). What is up
# to date is not done again. LIMIT is the most seconds of a phase; cut off, it goes on where it was with the same command.
# MOST takes the first passages only, in a folder of their own; DATA and RUNS name other folders than data and runs/queries.
set -euo pipefail
PARTS=${PARTS:-.carry/flan} OUT=${OUT:-runs/queries/results} DATA=${DATA:-data} RUNS=${RUNS:-runs/queries}
PYTHON=${PYTHON:-python} LIMIT=${LIMIT:-3600}
here=experiments/queries phases=() overrides=()
for word in "$@"; do
    case $word in *=*) overrides+=("$word") ;; *) phases+=("$word") ;; esac
done
[ ${#phases[@]} -gt 0 ] || phases=(prepare join train generate bench pack)
mkdir -p "$OUT"
passages=$DATA/wiki-passages${MOST:+-$MOST} model=$DATA/flan-t5-small
data=("stages.squad.paths=['$DATA/squad']" "stages.medquad.paths=['$DATA/medquad']"
    "stages.generator.model.path=$model" "stages.wiki.collection=$passages")
stages() {
    timeout -s INT "$LIMIT" "$PYTHON" $here/stages.py $here/generator.toml "$RUNS" "$@" "${data[@]}" "${overrides[@]}" 2>&1
}

prepare() {
    [ -f "$passages/passages.jsonl" ] ||
        "$PYTHON" $here/passages.py "$DATA/wiki" "$passages" --parts 0 ${MOST:+--most "$MOST"}
    stages squad medquad squad-bm25 medquad-bm25
}
join() {
    [ -d "$model" ] || { "$PYTHON" $here/flan_t5.py join "$PARTS" "$model.partial" && mv "$model.partial" "$model"; }
}
train() {
    stages generator | tee "$OUT/train.log"
    cp "$RUNS/generator/log.jsonl" "$OUT/generator.log.jsonl"
    cp "$RUNS/generator/timing.jsonl" "$OUT/generator.timing.jsonl"
}
generate() { stages squad-test wiki | tee "$OUT/generate.log"; }
bench() {
    timeout -s INT "$LIMIT" "$PYTHON" bench/generate.py --model "$RUNS/generator/model" \
        --passages "$passages/passages.jsonl" ${BENCH:---gpu} 2>&1 | tee "$OUT/bench.log"
}
pack() {
    for name in squad-test wiki; do
        mkdir -p "$OUT/$name"
        cp "$RUNS/$name/generation.json" "$OUT/$name/"
        "$PYTHON" -c "import lzma, shutil, sys; shutil.copyfileobj(open(sys.argv[1], 'rb'), lzma.open(sys.argv[2], 'wb', preset=1))" \
            "$RUNS/$name/generated.jsonl" "$OUT/$name/generated.jsonl.xz"
    done
}

for phase in "${phases[@]}"; do
    began=$SECONDS
    $phase
    echo "== $phase: $((SECONDS - began)) s"
done
ls -l "$OUT"
