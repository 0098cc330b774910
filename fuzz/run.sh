#!/usr/bin/env bash
# Fuzzes one target, or each of them, for a number of seconds. All output is in target/fuzz: the build, the inputs that
# reached new code, and those that failed. Copy useful inputs by hand to fuzz/corpus/<target>, where `make test` replays
# them.
#
#   fuzz/run.sh [<seconds> [<target>]]     600 seconds unless given, for each of fuzz/fuzz_targets or for one
#
# It takes a C++ compiler.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=${1:-600}
shift || true
targets=("$@")
[[ ${#targets[@]} != 0 ]] || targets=($(cd fuzz/fuzz_targets && ls -- *.rs | sed 's/\.rs$//'))

tools=$PWD/target/tools
version=0.13.1
if ! "$tools/bin/cargo-fuzz" --version 2>/dev/null | grep -q " $version\$"; then
  echo "fuzz: installing cargo-fuzz $version"
  cargo install --locked --quiet --root "$tools" --version "=$version" cargo-fuzz
fi

# The targets are safe Rust, so the sanitizers, which need a nightly compiler, would find nothing beyond panics. The
# release profile optimizes for size with fat LTO; here the speed of the build and of the fuzzer matters.
export CARGO_PROFILE_RELEASE_OPT_LEVEL=2 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
export CARGO_PROFILE_RELEASE_STRIP=none
for target in "${targets[@]}"; do
  found=target/fuzz/corpus/$target
  failed=target/fuzz/failed/$target
  mkdir -p "$found" "$failed"
  printf '\n=== %s, %s s\n' "$target" "$seconds"
  "$tools/bin/cargo-fuzz" run --sanitizer none --features libfuzzer --target-dir target/fuzz/build "$target" \
    "$found" "fuzz/corpus/$target" -- \
    -artifact_prefix="$failed/" -max_total_time="$seconds" -max_len=8192 -timeout=10 -print_final_stats=1
done
