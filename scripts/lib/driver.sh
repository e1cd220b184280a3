# What gpu-check looks at of the driver's view: that it adds up, that nvidia-smi says the same, and the post-mortem of a real out
# of memory.
# shellcheck shell=bash

# What both tools say of the GPUs. Sizes are compared within the 16 MiB by which an idle card moves.
QUERY=index,uuid,name,pci.bus_id,driver_version,memory.total,memory.reserved,memory.used,memory.free

# agree: nvidia-smi and `memtrack smi` give the same table, field by field.
smi_agrees() {
  nvidia-smi --query-gpu=$QUERY --format=csv >"$work/nvidia-smi.csv" || return
  "$out/memtrack" smi --query-gpu=$QUERY --format=csv >"$work/memtrack-smi.csv" || return
  cat "$work/nvidia-smi.csv" "$work/memtrack-smi.csv"
  paste -d '\n' "$work/nvidia-smi.csv" "$work/memtrack-smi.csv" | awk -F ', ' '
    NR % 2 { n = split($0, told, ", "); next }
    { if (NF != n) { print "other fields"; exit 1 }
      for (i = 1; i <= NF; i++) if ($i != told[i]) {
        d = $i - told[i]; if (d < 0) d = -d
        if ($i !~ / MiB$/ || told[i] !~ / MiB$/ || d > 16) { print told[i] " against " $i; bad = 1 } } }
    END { exit bad }'
}

# The program's out of memory leaves its files, and they are of use.
post_mortem() {
  local folder=$work/post-mortem
  MEMTRACK_OOM_DUMP=$folder "$out/driver-check" || return
  find "$folder" -type f -printf '%f %s bytes\n' | sort
  cat "$folder"/*/report.txt "$folder"/*/driver.txt
  [ "$(find "$folder" -name report.json | wc -l)" = 1 ] && [ -s "$(echo "$folder"/*/snapshot.pickle)" ]
}

# A training that publishes is seen by `memtrack smi`, and its figures add up there too.
published() {
  local folder=$work/published status
  mkdir -p "$folder"
  MEMTRACK_PUBLISH=$folder "$out/train" --device cuda --epochs 400 >"$work/published.log" 2>&1 &
  local training=$!
  for _ in $(seq 100); do
    [ -n "$(ls "$folder")" ] && break
    sleep 0.1
  done
  "$out/memtrack" smi --published "$folder"
  status=$?
  "$out/memtrack" check --published "$folder" --max-unexplained 64MiB
  kill "$training" 2>/dev/null
  wait "$training" 2>/dev/null
  [ "$status" = 0 ] && "$out/memtrack" smi --published "$folder" >/dev/null
}

# What tracking costs a training step, on the GPU and beside it on the CPU.
run_overhead() {
  check "a tracked step on the GPU is at most 1 % slower" \
    scripts/overhead run "$out/train" 9 --device cuda --epochs 202
  cat "$log"
  check "a tracked step on the CPU is at most 1 % slower" \
    scripts/overhead run "$out/train" 5 --device cpu --epochs 42
  cat "$log"
}

run_driver() {
  check "memtrack smi and nvidia-smi agree" smi_agrees
  cat "$log"
  check "the driver's figures add up, and an out of memory is explained" post_mortem
  cat "$log"
  check "a training is seen by memtrack smi" published
  cat "$log"
  check "memtrack check holds an idle card to its limits" "$out/memtrack" check --max-unexplained 16MiB --max-used 1GiB
  cat "$log"
}

# A program that allocates by cudarc alone, as candle does: what the driver's pool says against what it did.
run_sources() {
  check "the driver's memory pool as a source says what the program did" "$out/source-check"
  cat "$log"
}
