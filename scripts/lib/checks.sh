# How gpu-check checks something, and what it takes for right.
# shellcheck shell=bash

# What a check exits with where something that it needs beyond the GPU is not there.
NOT_THERE=77

# one_action USAGE ARGUMENTS...: there is one argument at most; help is told.
one_action() {
  local usage=$1
  shift
  case ${1-} in
    -h | --help) echo "$usage"; exit 0 ;;
  esac
  [ $# -le 1 ] || { echo "error: \`$2\` is one argument too many; $usage" >&2; exit 2; }
}

# absolute PATH: from here on, wherever its user is.
absolute() {
  case $1 in
    /*) echo "$1" ;;
    *) echo "$PWD/$1" ;;
  esac
}

failed=0
# check NAME COMMAND...: one check; its output stays in $log. Returns what the check did.
check() {
  local name=$1 status
  shift
  log=$work/$(tr -c 'a-z0-9\n' '-' <<<"$name").log
  "$@" >"$log" 2>&1
  status=$?
  case $status in
    0) echo "ok      $name" ;;
    "$NOT_THERE") echo "skipped $name: $(tail -n 1 "$log")" ;;
    *)
      echo "FAILED  $name (exit status $status)"
      tail -n 25 "$log" | cut -c1-300 | sed 's/^/        /'
      failed=1
      ;;
  esac
  return "$status"
}

# Says why a check is skipped.
skip() {
  echo "$1"
  return "$NOT_THERE"
}

# with_python SCRIPT ARGUMENTS...: one of this project's programs in Python.
with_python() {
  command -v python3 >/dev/null || skip "python3 is not found" || return
  LD_LIBRARY_PATH=$loader_path timeout 200 python3 "$@"
}

# replays_agree ARGUMENTS...: `memtrack replay` of these, with a line for each file that differs and one for the others.
replays_agree() {
  local status
  timeout 200 "$out/memtrack" replay "$@" >"$work/replay.out" 2>&1
  status=$?
  grep -v ': verified: ' "$work/replay.out"
  awk '/: verified: / { files++; match($0, /[0-9]+ statistics/); statistics += substr($0, RSTART, RLENGTH)
         match($0, /[0-9]+ addresses/); addresses += substr($0, RSTART, RLENGTH) }
    END { printf "%d programs agree: %d statistics, %d addresses\n", files, statistics, addresses }' "$work/replay.out"
  return "$status"
}

# with_files FILES... -- COMMAND...: the command, skipped where an earlier check left none of these files.
with_files() {
  local file
  while [ "$1" != -- ]; do
    file=$1
    [ -s "$file" ] || skip "an earlier check left no $(basename "$file")" || return
    shift
  done
  shift
  "$@"
}

# Both files hold one JSON object a line with a "loss"; every pair must agree within a share of 1e-3.
losses_agree() {
  paste "$1" "$2" | awk '
    { n = split($0, part, /"loss":/); if (n != 3) { print "line " NR " is not a pair: " $0; bad = 1; exit }
      a = part[2] + 0; b = part[3] + 0; d = a > b ? a - b : b - a; m = a > b ? a : b
      share = m > 0 ? d / m : 0; if (share > worst) worst = share }
    END { if (bad) exit 1; printf "%d losses, largest relative difference %.2e\n", NR, worst; exit !(NR > 0 && worst < 1e-3) }'
}

# The largest |driver.unexplained| of the JSON log's epoch events, which must be under 32 MiB.
reconciled() {
  awk '
    /"memtrack::epoch"/ && match($0, /"driver.unexplained":-?[0-9]+/) {
      value = substr($0, RSTART + 21, RLENGTH - 21) + 0; if (value < 0) value = -value
      if (value > worst) worst = value; n++ }
    END { printf "%d epochs, largest unexplained %d bytes\n", n, worst; exit !(n > 0 && worst < 32 * 1024 * 1024) }' "$1"
}

# Runs a command that must end with this exit status and say this.
ends_with() {
  local status=$1 text=$2
  shift 2
  "$@" >"$work/ends.out" 2>&1
  local got=$?
  cat "$work/ends.out"
  echo "exit status $got"
  [ "$got" = "$status" ] && grep -q "$text" "$work/ends.out"
}
