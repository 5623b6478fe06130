#!/usr/bin/env bash
# The generator, its queries and its speed, on a machine with a GPU; README.md here says what has to be there before.
#     PARTS=.carry/flan OUT=results bash experiments/queries/gpu.sh
set -euo pipefail
PARTS=${PARTS:-.carry/flan} OUT=${OUT:-runs/queries/results} DATA=${DATA:-data} RUNS=${RUNS:-runs/queries}
mkdir -p "$OUT"
say() { echo "== $(date +%T) $*"; }

say passages
python experiments/queries/passages.py "$DATA/wiki" "$DATA/wiki-passages" --parts 0 ${MOST:+--most "$MOST"}
say flan-t5-small
[ -d "$DATA/flan-t5-small" ] || python experiments/queries/flan_t5.py join "$PARTS" "$DATA/flan-t5-small"
say generator and queries
python -m liebig run experiments/queries/generator.toml --out "$RUNS" "$@" 2>&1 | tee "$OUT/run.log"
say against model.generate
python bench/generate.py --model "$RUNS/generator/model" --data "$DATA" ${BENCH:---gpu} 2>&1 | tee "$OUT/bench.log"
say results
cp "$RUNS/generator/log.jsonl" "$OUT/generator.log.jsonl"
for name in wiki squad-test; do
    cp "$RUNS/$name/generation.json" "$OUT/$name.generation.json"
    python -c "import lzma, shutil, sys; shutil.copyfileobj(open(sys.argv[1], 'rb'), lzma.open(sys.argv[2], 'wb', preset=6))" \
        "$RUNS/$name/generated.jsonl" "$OUT/$name.jsonl.xz"
done
ls -l "$OUT"
say done
