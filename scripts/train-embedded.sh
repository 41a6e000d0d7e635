#!/usr/bin/env bash
# Train the four embedded models and pack them into src/strop/assets/models.
#
#   scripts/train-embedded.sh [CORPUS]        (default data/corpus)
#   nohup scripts/train-embedded.sh > runs/embedded.log 2>&1 &
#
# Safe to interrupt, kill and start again: every run continues where its last saved state is, and
# what is finished is not done again. In all about three hours on two cores:
#   tales        95 min, and tales-early a tenth into it
#   tales-tiny   as many steps as tales, about 35 min
#   tales-ar     20 min
#
# Environment: PYTHON (default .venv/bin/python), RUNS (runs/embedded), MODELS
# (src/strop/assets/models), HELD_OUT (src/strop/assets/heldout/tales.jsonl), MINUTES_TALES,
# MINUTES_AR, ROWS (held-out rows of the final numbers), MORE (further `--set` flags for all runs).
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
    --shards "$runs/shards" --device cpu --set final_rows="$rows" "${more[@]}" "$@"
}

pack() { # RUN NAME [FLAGS]
  local run="$1" name="$2"
  shift 2
  "$python" "$here/scripts/pack-model.py" "$runs/$run" "$models/$name" --name "$name" \
    --shards "$runs/shards" --rows "$rows" "$@"
}

train tales embedded ${MINUTES_TALES:+--set minutes="$MINUTES_TALES"}
pack tales tales --held-out "$held_out"
pack tales tales-early --first

steps="$("$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["steps"])' \
  "$runs/tales/result.json")"
train tales-tiny embedded-tiny --set minutes=null --set steps="$steps"
pack tales-tiny tales-tiny

train tales-ar embedded-ar ${MINUTES_AR:+--set minutes="$MINUTES_AR"}
pack tales-ar tales-ar

du -sh "$models"
