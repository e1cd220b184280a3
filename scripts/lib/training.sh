# What gpu-check looks at with memtrack alone: the device, and the training program.
# shellcheck shell=bash

# What the example's documentation says a newcomer may try.
RETRY_CAPACITY=${RETRY_CAPACITY:-24MiB}
OOM_CAPACITY=${OOM_CAPACITY:-6MiB}

run_training() {
  check "device list on the card" "$out/device-check" cuda:0
  grep -c . "$log" | sed 's/$/ lines of device checks/'
  check "blocks keep their bytes while policy:compact moves pages" "$out/compact-check" cuda:0
  tail -n 1 "$log"
  check "kernels of GPU and CPU agree" env MEMTRACK_REQUIRE_GPU=1 "$out/train-tests" every_operation
  check "training on the CPU" "$out/train" --device cpu --losses "$work/cpu.jsonl"
  check "training on the GPU" "$out/train" --device cuda --losses "$work/cuda.jsonl"
  echo "its last epoch:"
  tail -n 13 "$log"
  check "losses of CPU and GPU agree" losses_agree "$work/cpu.jsonl" "$work/cuda.jsonl"
  cat "$log"
  check "training on the GPU, logged as JSON" "$out/train" --device cuda --log json
  local json=$log
  check "used is reconciled, unexplained under 32 MiB" reconciled "$json"
  cat "$log"
  check "a small capacity is survived by a retry" ends_with 0 "retried after giving cached memory back" \
    "$out/train" --device cuda --epochs 1 --capacity "$RETRY_CAPACITY" --log plain
  grep "retried after" "$log" | head -n 2
  check "a smaller one ends with an out of memory" ends_with 1 "out of memory on cuda:0" \
    "$out/train" --device cuda --epochs 1 --capacity "$OOM_CAPACITY"
  grep "^error" "$log"
  check "compute-sanitizer memcheck on a short run" \
    compute-sanitizer --tool memcheck --leak-check no --error-exitcode 9 "$out/train" --device cuda --epochs 1
  grep "ERROR SUMMARY" "$log"
}
