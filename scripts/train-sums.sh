#!/usr/bin/env bash
# Make the problems, train embedded:sums and embedded:sums-ar, and pack them into
# src/strop/assets/models. Safe to interrupt, kill and start again.
#
#   scripts/train-sums.sh [--set KEY=VALUE ...]      (further flags go to both runs)
#
# Environment: PYTHON (default .venv/bin/python), RUNS (runs/sums), MODELS
# (src/strop/assets/models), COUNT (training problems, 200000), TESTS (test problems, 500).
set -euo pipefail
here="$(cd "$(dirname "$0")/.." && pwd)"
python="${PYTHON:-$here/.venv/bin/python}"
runs="${RUNS:-$here/runs/sums}"
models="${MODELS:-$here/src/strop/assets/models}"
export PYTHONPATH="$here/src${PYTHONPATH:+:$PYTHONPATH}"

[ -e "$runs/data/tokenizer/tokenizer.json" ] ||
  "$python" "$here/scripts/make-sums.py" "$runs/data" --count "${COUNT:-200000}"
for name in sums sums-ar; do
  "$python" -m strop train "$name" -o "$runs/$name" --data-root "$runs/data" \
    --shards "$runs/shards" --device cpu "$@"
  "$python" "$here/scripts/pack-sums.py" "$runs/$name" "$models/$name" --name "$name" \
    --shards "$runs/shards" --count "${TESTS:-500}"
done
