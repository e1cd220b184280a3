# Other people's programs under memtrack: each check is a script of its own, scripts/NAME-check, which builds and runs alone as well.
# shellcheck shell=bash

# Of each part, a file that its build leaves.
declare -A program_file=([preload]=preload-program [candle]=candle-gpt [burn]=burn-digits [tch]=tch-digits)

# build_programs NAME...
build_programs() {
  local name
  for name in "$@"; do
    CARGO_TARGET_DIR=$(dirname "$out") "scripts/$name-check" build || fail "scripts/$name-check could not build; see above"
  done
}

# A part that was not built is skipped: a framework takes minutes and gigabytes that not everyone has.
run_program() {
  local name=$1 file=$out/${program_file[$1]}
  if [ ! -s "$file" ] && [ ! -s "$file.xz" ]; then
    echo "skipped $name: $file is not there: run \`scripts/gpu-check build $name\`, or carry it here"
    return
  fi
  CARGO_TARGET_DIR=$(dirname "$out") LD_LIBRARY_PATH=$loader_path "scripts/$name-check" run || failed=1
}

run_preload() { run_program preload; }
run_candle() { run_program candle; }
run_burn() { run_program burn; }
run_tch() { run_program tch; }
