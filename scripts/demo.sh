#!/usr/bin/env bash
# The main job on the embedded model, as a user would type it. Run again, it continues or answers
# from what is there.
set -euo pipefail
cd "$(dirname "$0")/.."
out="${1:-runs/demo}"

# Temperature {1, .9, .85} by precision {float64, float32}, at four budgets.
strop audit --steps 4,16,64,1024 -n 32,32,32,16 --fresh-n 16,16,16,8 -o "$out"

# The smallest case of the theory: two bits, revealed together or one by one.
[ -e "$out/theory/mixture.svg" ] || strop theory figure -o "$out/theory" > /dev/null

# The extreme corners, read in groups of eight by a judge that only counts.
strop groupeval plan "$out" --where steps=64,temperature=1,precision=float64 \
  --where steps=64,temperature=0.9,precision=float32 -o "$out/groupeval"
strop groupeval judge "$out/groupeval" --offline
strop groupeval score "$out/groupeval"

strop report "$out" -o "$out/report.html"
echo
echo "The page: $out/report.html"
