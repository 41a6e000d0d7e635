#!/usr/bin/env bash
# Make the texts, train block diffusion and, by the same recipe, diffusion of whole rows, pack the
# first as embedded:even-block, and measure both with the law of the language. Safe to interrupt,
# kill and start again.
#
#   scripts/train-blocks.sh [--set KEY=VALUE ...]      (further flags go to both runs)
#
# Environment: PYTHON (default .venv/bin/python), RUNS (runs/blocks), MODELS
# (src/strop/assets/models), N (outputs of every line, 128).
set -euo pipefail
here="$(cd "$(dirname "$0")/.." && pwd)"
python="${PYTHON:-$here/.venv/bin/python}"
runs="${RUNS:-$here/runs/blocks}"
models="${MODELS:-$here/src/strop/assets/models}"
export PYTHONPATH="$here/src${PYTHONPATH:+:$PYTHONPATH}"

[ -e "$runs/data/texts.txt.gz" ] || "$python" "$here/scripts/make-block-texts.py" "$runs/data"
for block in 4 100; do
  "$python" -m strop train even-block -o "$runs/$block" --data-root "$runs/data" \
    --shards "$runs/shards" --device cpu --set model.block_size="$block" "$@"
done
"$python" "$here/scripts/pack-blocks.py" "$runs/4" "$models/even-block" --shards "$runs/shards"
"$python" "$here/scripts/block-truth.py" "$models/even-block" \
  "$(ls -d "$runs"/100/checkpoints/step-* | tail -n 1)" -n "${N:-128}"
