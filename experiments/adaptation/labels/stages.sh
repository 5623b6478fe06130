#!/usr/bin/env bash
# labels: packages, a first small build, then builds with 20 and 100 labels.  judge: the same with the judge behind them.
set -uo pipefail
home=${JUDGE_HOME:-/tmp/judge}
python=${PYTHON:-python3}
export PYTHONUNBUFFERED=1 OMP_NUM_THREADS=${THREADS:-2} NUMBA_NUM_THREADS=${THREADS:-2} TOKENIZERS_PARALLELISM=true
export LIEBIG_CACHE=$home/cache LIEBIG_STATE=$home/state HF_HUB_OFFLINE=1 HF_HOME=$home/hf
export PYTHONPATH=$home/repo/src:$home/deps NUMBA_CACHE_DIR=$home/numba
[ -n "${NO_DEPS:-}" ] && export PYTHONPATH=$home/repo/src
mkdir -p "$home/logs" "$home/out/builds"
seeds=${SEEDS:-0 1 2}
builds() {  # the arm's name, labels, seconds, and more arguments
  local name=$1 labels=$2 limit=$3; shift 3
  local pids=() many sets=${SETS:-medquad squad scifact cosqa vaswani trec-dl21 cranfield semeval-cqa}
  [ "$labels" -gt 50 ] && sets=${SETS100:-medquad squad scifact cosqa cranfield semeval-cqa}
  for one in $sets; do
    many=$labels
    case $one in cranfield|semeval-cqa) [ "$labels" -gt 50 ] && many=50;; esac
    mkdir -p "$home/out/builds/$one"
    timeout -k 5 "$limit" $python "$home/gpu_builds.py" "$home" "${BUILD_DATA:-$home/in/data}" "$home/out/builds/$one" --sets "$one" \
      --split dev test --seeds $seeds --most "${MOST:-600}" --one-folder --labels $many --name "$name" "$@" > "$home/logs/$name-$one.log" 2>&1 &
    pids+=($!)
    sleep "${STAGGER:-0.3}"
  done
  wait "${pids[@]}"
  echo "$name $(date +%T)"
}
cd "$home"
if [ "$1" = labels ]; then
  date +%T
  if [ -z "${NO_DEPS:-}" ]; then cp unpack.py in/deps/ && $python in/deps/unpack.py "$home/deps"; fi
  $python -c "import liebig, numba, torch; print(liebig.__file__, numba.__version__, torch.__version__, torch.cuda.is_available()); from liebig.encoders import folder; print(folder())"
  (SETS=semeval-cqa; seeds=0; builds warm 20 150)
  builds l20 20 "${LIMIT:-240}"
  builds l100 100 "${LIMIT:-240}"
  touch labels.ended; exit 0
fi
trap 'touch "$home/ended"' EXIT
$python makejudge.py "$home" ${TRIAL:-} || exit 1
while [ ! -f labels.ended ]; do sleep 0.5; done
builds j20 20 "${LIMIT:-330}" --reranker "$home/judge"
builds j100 100 "${LIMIT:-330}" --reranker "$home/judge"
echo "ENDED"
