#!/usr/bin/env bash
# Train the four embedded models and pack them into src/strop/assets/models.
#
#   scripts/train-embedded.sh [CORPUS]        (default data/corpus)
#   nohup scripts/train-embedded.sh > runs/embedded.log 2>&1 &
#
# Safe to interrupt, kill and start again: every run continues where its last saved state is, and
# what is finished is not done again. Every run ends with a model that can be used. In all about five
# hours on two cores:
#   tales           95 min, and tales-early a tenth into it
#   tales-longer    95 min more, from the weights of tales; replaces it
#   tales-tiny      as many steps as tales, then as many as tales-longer; about 50 min
#   tales-ar        20 min
#
# Environment: PYTHON (default .venv/bin/python), RUNS (runs/embedded), MODELS
# (src/strop/assets/models), HELD_OUT (src/strop/assets/heldout/tales.jsonl), MINUTES_TALES,
# MINUTES_LONGER, MINUTES_AR, ROWS (held-out rows of the final numbers), MORE (further `--set` flags
# for all runs; `--set precision=bfloat16` is twice as fast on a CPU with bfloat16 units).
set -euo pipefail
here="$(cd "$(dirname "$0")/.." && pwd)"
python="${PYTHON:-$here/.venv/bin/python}"
runs="${RUNS:-$here/runs/embedded}"
models="${MODELS:-$here/src/strop/assets/models}"
held_out="${HELD_OUT:-$here/src/strop/assets/heldout/tales.jsonl}"
corpus="${1:-$here/data/corpus}"
rows="${ROWS:-2048}"
read -r -a more <<< "${MORE:-}"

[ -d "$corpus" ] || { echo "there is no corpus at $corpus; see the configuration for its files" >&2; exit 1; }
mkdir -p "$runs" "$models"

train() { # NAME CONFIG [FLAGS]
  local name="$1" config="$2"
  shift 2
  "$python" -m strop train "$config" -o "$runs/$name" --data-root "$corpus" \
    --shards "$runs/shards" --device cpu --set final_rows="$rows" "$@" "${more[@]}"
}

pack() { # RUN NAME [FLAGS]
  local run="$1" name="$2"
  shift 2
  "$python" "$here/scripts/pack-model.py" "$runs/$run" "$models/$name" --name "$name" \
    --shards "$runs/shards" --rows "$rows" "$@"
}

of() { # KEY RUN: one value of a run's result
  "$python" -c 'import json, sys; print(json.load(open(sys.argv[2]))[sys.argv[1]])' \
    "$1" "$runs/$2/result.json"
}

# A run that goes on from another's weights: other batches, a longer average, an earlier fall.
longer() { # NAME CONFIG FIRST [FLAGS]
  local name="$1" config="$2" first="$3"
  shift 3
  train "$name" "$config" --set start="$(of checkpoint "$first")" --set ema=0.999 \
    --set decay_from=0.2 --set keep_shares=[] "$@"
}

train tales embedded ${MINUTES_TALES:+--set minutes="$MINUTES_TALES"}
[ -e "$runs/tales-longer/result.json" ] || pack tales tales --held-out "$held_out"
pack tales tales-early --first
longer tales-longer embedded tales --set seed=2 --set batch=64 --set micro_batch=32 \
  ${MINUTES_LONGER:+--set minutes="$MINUTES_LONGER"}
pack tales-longer tales --after "$runs/tales" --held-out "$held_out"

train tales-tiny embedded-tiny --set minutes=null --set steps="$(of steps tales)"
longer tales-tiny-longer embedded-tiny tales-tiny --set seed=3 --set minutes=null \
  --set steps="$(of steps tales-longer)"
pack tales-tiny-longer tales-tiny --after "$runs/tales-tiny"

train tales-ar embedded-ar ${MINUTES_AR:+--set minutes="$MINUTES_AR"}
pack tales-ar tales-ar

du -sh "$models"
