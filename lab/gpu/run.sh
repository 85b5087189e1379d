#!/bin/bash
# Measures a GPU in one command, from the root of the repository: bash lab/gpu/run.sh   (stops itself after 540 s)
# Rehearsal on a CPU, in some five minutes: GPU_DEVICE=cpu OUT=FOLDER bash lab/gpu/run.sh
# Some steps alone: GPU_STEPS="smoke bf16" bash lab/gpu/run.sh
# lab/gpu/make_carry.sh makes what it needs beside the repository; README.md says what each step measures.
DEVICE=${GPU_DEVICE:-cuda:0} OUT=${OUT:-/tmp/out} PYTHON=${GPU_PYTHON:-python3} SITE=${GPU_SITE:-/tmp/site}
END=$((SECONDS + ${GPU_S:-540}))
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1 HF_HUB_DISABLE_TELEMETRY=1
export COLUMNS=120 MPLCONFIGDIR=/tmp/mpl OPENBLAS_NUM_THREADS=4
mkdir -p "$OUT"
exec > >(tee -a "$OUT/log.txt") 2>&1

say() { echo "== $SECONDS s: $*"; }

# step NAME SECONDS COMMAND...: runs it if there is time left, never past the end; what it wrote so far stays.
step() {
  local name=$1 most=$2 left=$((END - SECONDS)) code
  shift 2
  [[ " ${GPU_STEPS:-$name} " == *" $name "* ]] || return 0
  [ $left -lt 25 ] && { say "$name: no time left"; return 9; }
  [ $most -gt $left ] && most=$left
  say "$name, at most $most s"
  timeout -k 5 "$most" "$@"
  code=$?
  say "$name: exit code $code"
  return $code
}

# bench NAME SECONDS WINDOWS OPTIONS...: figures of `crossspec bench gpu` in $OUT/NAME.json, after each dtype.
bench() {
  local name=$1 most=$2 windows=$3
  shift 3
  [ "$DEVICE" = cpu ] && windows=2
  step "$name" "$most" "${BENCH[@]}" --trace "$TRACE" --heard "$HEARD" --windows "$windows" \
    --json "$OUT/$name.json" "$@"
}

say "set-up"
if compgen -G ".whl/*.whl" > /dev/null; then
  "$PYTHON" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$SITE" \
    .whl/*.whl || exit 3
fi
# The command line finds the laboratory only where it is installed.
"$PYTHON" -m pip install -q --no-index --no-deps --no-build-isolation --no-cache-dir --upgrade --target "$SITE" \
  ./lab || exit 3
tar -C /tmp -xJf .gpu/qwen3_vl_4b.tar.xz || say "no folder of Qwen3-VL-4B: that step will fail"
export PYTHONPATH="$SITE:$PWD"
"$PYTHON" - <<'PY' || exit 3
import os
import bitsandbytes, numpy, torch, transformers

for package in (torch, transformers, bitsandbytes, numpy):
    print(package.__name__, package.__version__)
print(os.cpu_count(), "cores")
if torch.cuda.is_available():
    gpu = torch.cuda.get_device_properties(0)
    free = torch.cuda.mem_get_info()[0]
    print(f"{gpu.name}: {gpu.total_memory >> 30} GiB, {free >> 30} free, {gpu.multi_processor_count} SMs")
PY
command -v nvidia-smi > /dev/null &&
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm,memory.total --format=csv

BENCH=("$PYTHON" -m crossspec_ros.cli bench gpu)
if [ "$DEVICE" = cpu ]; then
  # Tiny models know 577 words, so a trace of their own.
  BENCH+=(--tiny --hurried 2) TRACE=lab/gpu/tiny_trace.jsonl HEARD=1 QWEN=models/tiny_qwen3_vl
else
  TRACE=.gpu/trace.jsonl HEARD=100 QWEN=/tmp/qwen3_vl_4b
fi

GPU_DEVICE=$DEVICE step smoke 110 "$PYTHON" -m pytest -o addopts= --noconftest -p no:cacheprovider -v -m gpu \
  lab/test/bench/test_gpu_device.py
bench bf16 200 20 --dtypes bf16
bench qwen3vl 130 12 --dtypes bf16 --target "$QWEN"
bench nf4 150 12 --dtypes nf4
command -v nvidia-smi > /dev/null &&
  nvidia-smi --query-gpu=clocks.sm,temperature.gpu,memory.used --format=csv,noheader
say "done"
ls -la "$OUT"
