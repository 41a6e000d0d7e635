#!/usr/bin/env bash
# The numeric tests (marker `numeric`) as other processors would run them: older instructions, one
# and two threads, in random order. Ends with the list of combinations that ran.
#
#   scripts/test-portable.sh [pytest arguments]
#
# SETS (default "avx2 sse"), THREADS (default "1 2") and SEED (of the order; default: the date)
# choose the combinations. `native` in SETS leaves the instructions to the processor.
set -u
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
seed=${SEED:-$(date +%Y%m%d)}

# Each library chooses its instructions by itself: oneDNN and torch's own loops, MKL and OpenBLAS
# for products of matrices, numpy for everything element by element.
instructions() {
  case $1 in
    avx2) echo ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 \
      OPENBLAS_CORETYPE=Haswell NPY_DISABLE_CPU_FEATURES=X86_V4,AVX512_ICL,AVX512_SPR ;;
    sse) echo ONEDNN_MAX_CPU_ISA=SSE41 ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE \
      OPENBLAS_CORETYPE=Nehalem NPY_DISABLE_CPU_FEATURES=X86_V3,X86_V4,AVX512_ICL,AVX512_SPR ;;
    native) ;;
    *) echo "unknown instruction set: $1 (avx2, sse, native)" >&2; return 1 ;;
  esac
}

ran=() failed=0
for set in ${SETS:-avx2 sse}; do
  settings=$(instructions "$set") || exit 2
  for threads in ${THREADS:-1 2}; do
    began=$SECONDS
    echo "== $set, $threads thread(s), order $seed: ${settings:-all that there are}"
    # shellcheck disable=SC2086
    if env $settings STROP_TEST_THREADS="$threads" OMP_NUM_THREADS="$threads" \
      MKL_NUM_THREADS="$threads" OMP_WAIT_POLICY=passive "$python" -m pytest -m "numeric and not slow and not heavy and not server" \
      --shuffle "$seed" "$@"; then
      verdict=passed
    else
      verdict=FAILED failed=1
    fi
    ran+=("$verdict  $set, $threads thread(s), order $seed, $((SECONDS - began)) s")
    seed=$((seed + 1))
  done
done
printf '\nran on %s:\n' "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -1)"
printf '  %s\n' "${ran[@]}"
exit $failed
