# The building half of gpu-check: everything that a run needs, into the folder $out.
# shellcheck shell=bash

# The files that a cargo command has built, one a line, among others that its messages name.
artifacts() {
  "$@" --message-format=json | grep '"reason":"compiler-artifact"' | grep -oE '"/[^"]*"' | tr -d '"'
}

build() {
  command -v cargo >/dev/null || fail "cargo is not found: build on a machine with Rust, and carry $out here"
  local built tests program
  built=$(artifacts cargo build --release -p memtrack-examples --example train --features backtrace) &&
    built+=$'\n'$(artifacts cargo build --release -p memtrack-tests --bins) &&
    built+=$'\n'$(artifacts cargo build --release -p memtrack-cli --bins) &&
    built+=$'\n'$(artifacts cargo build --release -p memtrack-peers) &&
    # The kernels' comparison is a test of the example, whose executable cargo names with a hash.
    tests=$(artifacts cargo test --release -p memtrack-examples --example train --no-run) ||
    fail "cargo could not build the programs; see above"
  mkdir -p "$out" || fail "$out cannot be created"
  copy "$built" '/examples/train$' train
  copy "$built" '/compact-check$' compact-check
  copy "$built" '/device-check$' device-check
  copy "$built" '/driver-check$' driver-check
  copy "$built" '/source-check$' source-check
  copy "$built" '/release/memtrack$' memtrack
  copy "$built" '/libmemtrack_peers\.so$' libmemtrack_peers.so
  copy "$built" '/peer_buffers$' peer_buffers
  copy "$tests" '/examples/train-[^/]*$' train-tests
  for program in compact-check device-check driver-check source-check memtrack libmemtrack_peers.so peer_buffers train-tests; do
    strip "$out/$program" || echo "$program is not stripped, only larger for it" >&2
  done
  # The run goes on without RMM where it cannot be had, and the script says why.
  scripts/rmm-wheels "$out/rmm"
  # Its snapshots name functions, files and lines, which the debug information tells.
  objcopy --compress-debug-sections=zlib "$out/train" || echo "train is not compressed, only larger for it" >&2
  du -sh "$out"
}

# copy PATHS PATTERN NAME: the one of these paths that matches, under this name into $out.
copy() {
  local path
  path=$(grep -E "$2" <<<"$1" | tail -n 1)
  [ -n "$path" ] || fail "cargo names no file for $3"
  cp "$path" "$out/$3" || fail "$path cannot be copied to $out/$3"
}
