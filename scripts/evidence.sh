#!/usr/bin/env bash
# The numbers that README and docs quote about the embedded models, measured again.
#
#   scripts/evidence.sh [DIR]        (default runs/evidence; about half an hour on two cores)
#   scripts/evidence.sh truth [DIR]  (docs/evidence.md; default runs/truth; N, 1024, is outputs a cell;
#                                    about an hour on two cores, a language on each)
#
# Safe to interrupt and start again: what is measured is not measured again.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"

if [ "${1:-}" = truth ]; then
  out="${2:-runs/truth}" n="${N:-1024}"
  mkdir -p "$out"
  export OMP_NUM_THREADS=1
  ask() { # LANGUAGE QUESTION OUTPUTS [MODEL...]
    strop study truth "${@:4}" --question "$2" --language "$1" -n "$3" --pools "$out/pools/$1" \
      -o "$out/$1-$2"
  }
  every() { # LANGUAGE
    for question in temperature leak less schedules orders bound compare; do
      ask "$1" "$question" "$n"
    done
    ask "$1" proxies "$((n / 4))"
    ask "$1" precision "$n"
    search "$1" perfect 0
    search "$1" leaky 0.02
  }
  search() { # LANGUAGE NAME LEAK: `tune` on a checkpoint whose truth is known
    local model="$out/models/$1-$2"
    mkdir -p "$model"
    printf '{"model_type": "language", "language": "%s", "leak": %s}\n' "$1" "$3" \
      >"$model/config.json"
    strop tune "$model" --steps 16 --space temperature=0.6:1.1:0.1 --evaluator "embedded:$1-ar" \
      --fresh-n "$n" -o "$out/$1-tune-$2"
  }
  { every even && ask tail precision "$n" perfect; } >"$out/even.log" 2>&1 &
  even=$!
  every skewed >"$out/skewed.log" 2>&1 &
  skewed=$!
  wait "$even" && wait "$skewed" || { tail -n 5 "$out"/*.log >&2; exit 1; }
  exit
fi

out="${1:-runs/evidence}"

# How much of the gap is the sampler: the corners, with pools large enough for narrow intervals.
strop audit --steps 4,16,64,1024 -n 64,64,64,32 --no-fresh -o "$out/audit"

# Precision alone, with many steps: they are not bounded by the length.
strop sample embedded:tales --steps 1024,4096,16384 --precision float64,float32 -n 64 \
  -o "$out/precision"
strop score "$out/precision"

# The two inversions: more training, more weights.
strop study less-is-more embedded:tales embedded:tales-early --steps 2,4,8,16 -n 64 \
  -o "$out/more-training"
strop study less-is-more embedded:tales embedded:tales-tiny --steps 2,4,8,16 -n 64 \
  -o "$out/more-weights"

# What sharpening does to the loss that the sampler's rounds see.
strop study posterior embedded:tales-early embedded:tales -o "$out/posterior"

# Two texts that per-output scores prefer.
strop study collapse --steps 16 -n 64 -o "$out/collapse"

# Likelihood against judged quality on the same outputs.
strop study exact-output --smoke -o "$out/exact-output"

# Memory and time.
strop study cost --steps 4,16,64 -o "$out/cost"

strop report "$out/audit" "$out/posterior" "$out/cost" -o "$out/report.html"
