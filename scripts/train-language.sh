#!/usr/bin/env bash
# Draw texts of a language whose law is known, train small models on them, and pack them into
# src/strop/assets/models: LANGUAGE, LANGUAGE-early (three tenths into the run), LANGUAGE-tiny,
# LANGUAGE-ar. Safe to interrupt, kill and start again; about 15 minutes each on a free core.
#
#   scripts/train-language.sh [LANGUAGE] [--set KEY=VALUE ...]     (default even)
#
# Environment: PYTHON (default .venv/bin/python), RUNS (runs/language), MODELS
# (src/strop/assets/models), COUNT (texts, 100000), ONLY (names to train, of: late tiny ar).
set -euo pipefail
here="$(cd "$(dirname "$0")/.." && pwd)"
python="${PYTHON:-$here/.venv/bin/python}"
runs="${RUNS:-$here/runs/language}"
models="${MODELS:-$here/src/strop/assets/models}"
language="${1:-even}"
[ $# -eq 0 ] || shift
export PYTHONPATH="$here/src:$here/scripts${PYTHONPATH:+:$PYTHONPATH}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"

[ -e "$runs/$language-data/tokenizer/tokenizer.json" ] ||
  "$python" "$here/scripts/make-language.py" "$runs/$language-data" --language "$language" \
    --count "${COUNT:-100000}"

train() { # NAME [FLAGS]
  local name="$1"
  shift
  "$python" -m strop train language -o "$runs/$name" --data-root "$runs/$language-data" \
    --shards "$runs/$language-shards" --device cpu "$@"
}

pack() { # RUN NAME [FLAGS]
  local run="$1" name="$2"
  shift 2
  "$python" "$here/scripts/pack-language.py" "$runs/$run" "$models/$name" --name "$name" \
    --language "$language" --shards "$runs/$language-shards" "$@"
}

for what in ${ONLY:-late tiny ar}; do
  case "$what" in
    late)
      train "$language" "$@"
      pack "$language" "$language"
      pack "$language" "$language-early" --share 0.3
      ;;
    tiny)
      train "$language-tiny" --set model.hidden_dim=40 --set model.n_blocks=2 \
        --set model.n_heads=2 --set 'keep_shares=[]' "$@"
      pack "$language-tiny" "$language-tiny"
      ;;
    ar)
      train "$language-ar" --set model.family=ar --set objective=causal --set steps=500 \
        --set 'keep_shares=[]' "$@"
      pack "$language-ar" "$language-ar"
      ;;
  esac
done
