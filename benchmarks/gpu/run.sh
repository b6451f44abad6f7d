#!/usr/bin/env bash
# What is to be run on a GPU, in parts of at most twelve minutes each on an H200, without a network:
#
#   benchmarks/gpu/run.sh 0    after a change of the kernels, six minutes: tests, compute-sanitizer, the same bits, seconds
#   benchmarks/gpu/run.sh 1    every operator on the GPU, wrong structure, compute-sanitizer on one sample of each
#   benchmarks/gpu/run.sh 2    every test with a device; no hidden waits, two streams, graphs, more than 2**31 elements
#   benchmarks/gpu/run.sh 3    seconds: kernels beside torch and the copy ceiling, recurrences beside cuDNN, attention
#   benchmarks/gpu/run.sh 4    ncu on the eight kernels furthest from the ceiling, then the benchmark table
#
# PYTHON=<python with a CUDA torch, pytest, pytest-xdist>; LIB=<a folder with _kernels.so and _C.so, built elsewhere for
# that torch> instead of a build here (benchmarks/gpu/build.py); OUT=<folder> for what is measured.
set -uo pipefail
cd "$(dirname "$0")/../.."
PYTHON=${PYTHON:-python3} OUT=${OUT:-build/gpu} JOBS=${JOBS:-8}
export PYTHONPATH=$PWD:$PWD/tests:$PWD/tests/lib
case "${1:-}" in
[0-4]) ;;
*)
  sed -n '2,13p' "$0"
  exit 2
  ;;
esac
mkdir -p "$OUT"
if [ -n "${LIB:-}" ]; then
  cp "$LIB"/{_kernels,_C}.so torch_lod/ || exit 1
elif ! compgen -G "torch_lod/_C*.so" >/dev/null; then
  "$PYTHON" benchmarks/gpu/build.py || exit 1
fi
"$PYTHON" -c "
import torch, torch_lod
assert torch.cuda.is_available(), 'torch finds no GPU'
assert torch_lod.ops.COMPILED, 'the operators are not compiled'
print(torch.__version__, torch.version.cuda, torch.cuda.get_device_name())" || exit 1

status=0
part() { # seconds, name, command
  local limit=$1 name=$2
  shift 2
  echo "== $name"
  timeout "$limit" "$@" >"$OUT/$name.log" 2>&1
  local code=$?
  tail -n 5 "$OUT/$name.log"
  [ $code -eq 0 ] || { echo "-- $name: exit status $code, see $OUT/$name.log"; status=1; }
}
pytest=("$PYTHON" -W ignore -m pytest -q --no-header -p no:cacheprovider -k cuda)

case "${1:-}" in
0)
  part 110 tests "${pytest[@]}" -n "$JOBS" -m quick tests/laws/test_blocks.py tests/laws/test_laws_ops.py
  if command -v compute-sanitizer >/dev/null; then
    part 100 memcheck compute-sanitizer --tool memcheck --error-exitcode 9 "$PYTHON" -W ignore benchmarks/gpu/probe.py samples
  else
    echo "no compute-sanitizer: not run"
  fi
  part 140 quick "$PYTHON" -W ignore benchmarks/gpu/measure.py quick "$OUT/quick.json"
  ;;
1)
  part 240 operators "${pytest[@]}" -n "$JOBS" tests/laws/test_laws_ops.py tests/laws/test_laws.py
  part 60 faults "$PYTHON" -W ignore benchmarks/gpu/probe.py faults
  if command -v compute-sanitizer >/dev/null; then
    part 200 memcheck compute-sanitizer --tool memcheck --error-exitcode 9 "$PYTHON" -W ignore benchmarks/gpu/probe.py samples
    part 200 initcheck compute-sanitizer --tool initcheck --error-exitcode 9 "$PYTHON" -W ignore benchmarks/gpu/probe.py samples
  else
    echo "no compute-sanitizer: not run"
  fi
  ;;
2)
  part 330 tests "${pytest[@]}" -n "$JOBS" tests
  part 60 waits "$PYTHON" -W ignore benchmarks/gpu/probe.py waits
  part 40 streams "$PYTHON" -W ignore benchmarks/gpu/probe.py streams
  part 40 graph "$PYTHON" -W ignore benchmarks/gpu/probe.py graph
  part 40 views "$PYTHON" -W ignore benchmarks/gpu/probe.py views
  part 60 large "$PYTHON" -W ignore benchmarks/gpu/probe.py large
  ;;
3)
  part 260 kernels "$PYTHON" -W ignore benchmarks/gpu/measure.py kernels "$OUT/kernels.json"
  part 170 recurrences "$PYTHON" -W ignore benchmarks/gpu/measure.py recurrences "$OUT/recurrences.json"
  part 100 attention "$PYTHON" -W ignore benchmarks/gpu/measure.py attention "$OUT/attention.json"
  ;;
4)
  if command -v ncu >/dev/null; then
    part 240 ncu ncu --set full --launch-skip 8 --launch-count 16 -f -o "$OUT/worst" \
      "$PYTHON" -W ignore benchmarks/gpu/measure.py worst "$OUT/kernels.json"
  else
    echo "no ncu: not run"
  fi
  part 280 table "$PYTHON" -m benchmarks --device cuda --quick
  ;;
esac
exit $status
