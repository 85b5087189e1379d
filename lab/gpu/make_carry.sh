#!/bin/bash
# Makes what a GPU machine without network needs beside the repository, in its root: .whl (17 MB) and .gpu (2 MB), both
# ignored by git. It is for Python 3.12, torch 2.11 for CUDA 13 and transformers 5.17.
# bash lab/gpu/make_carry.sh [FOLDER WITH qwen3_vl_4b.tar.xz] [TRACE.jsonl]; there: bash lab/gpu/run.sh
set -e
DATA=${1:-../shared/gpu} TRACE=${2:-../shared/data/caption_trace/key_elements.jsonl}
EXCLUDE=$(git rev-parse --git-path info/exclude)
mkdir -p "$(dirname "$EXCLUDE")" .whl .gpu
printf '/.whl/\n/.gpu/\n' >> "$EXCLUDE"
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

# get FOLDER PACKAGE: the wheel for the GPU machine.
get() {
  local platforms=()
  for platform in manylinux_2_28 manylinux_2_24 manylinux_2_17 manylinux2014; do
    platforms+=(--platform "${platform}_x86_64")
  done
  python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
    "${platforms[@]}" -d "$1" "$2"
}

cp -f "$DATA/qwen3_vl_4b.tar.xz" .gpu/
cp -f "$TRACE" .gpu/trace.jsonl
for package in transformers==5.23.0 pytest pluggy iniconfig; do get .whl "$package"; done
get "$WORK" bitsandbytes==0.50.2
# bitsandbytes has 43 MB of libraries for other versions of CUDA; those of 13.0 and of the CPU stay, 4 MB.
python3 - "$WORK" <<'PY'
import pathlib
import sys
import zipfile

(wheel,) = pathlib.Path(sys.argv[1]).glob("bitsandbytes-*.whl")


def is_kept(name: str) -> bool:
    return not name.endswith(".so") or name.endswith(("_cuda130.so", "_cpu.so"))


slim = zipfile.ZipFile(pathlib.Path(".whl") / wheel.name, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
with zipfile.ZipFile(wheel) as whole, slim:
    for member in filter(lambda one: is_kept(one.filename), whole.infolist()):
        data = whole.read(member)
        if member.filename.endswith("RECORD"):
            lines = data.splitlines(keepends=True)
            data = b"".join(line for line in lines if is_kept(line.split(b",")[0].decode()))
        slim.writestr(member.filename, data)
PY
du -cb $(git ls-files) .whl .gpu 2> /dev/null | tail -1 | awk '{printf "travels: %.1f of 64 MiB\n", $1 / 1048576}'
