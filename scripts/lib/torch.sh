# What gpu-check looks at beside PyTorch: the same programs, snapshots both ways, and speed.
# shellcheck shell=bash

# The stored programs that a GPU can repeat to the step. Not those with a busy stream, which cannot be arranged, nor those
# where free blocks of one size tie: there the choice goes by address, and the driver gives other addresses each time.
repeatable_programs() {
  local file
  for file in tests/fixtures/torch-2.11/programs/*.json.gz; do
    case $file in
      *-combo-limit.* | *-round4-limit.* | */random-small-split64-free.*) continue ;;
    esac
    gzip -dc "$file" | grep -q '"sleep"' || echo "$file"
  done
}

run_replays() {
  local stored
  mapfile -t stored < <(repeatable_programs)
  check "${#stored[@]} programs recorded from PyTorch earlier replay on the card" \
    replays_agree --device cuda "${stored[@]}" && cat "$log"

  local programs=$work/programs seed=${SEED:-1}
  check "PyTorch runs random programs, seed $seed" with_python scripts/torch/record_program.py "$programs" --seed "$seed" &&
    cat "$log"
  local recorded=("$programs"/*.json.gz)
  check "memtrack answers the same on a simulated device, addresses too" \
    with_files "${recorded[@]}" -- replays_agree "${recorded[@]}" && cat "$log"
  check "memtrack answers the same on the card" \
    with_files "${recorded[@]}" -- replays_agree --device cuda "${recorded[@]}" && cat "$log"
}

run_snapshots() {
  local ours=$work/memtrack.pickle ours_expandable=$work/memtrack-expandable.pickle ours_oom=$work/memtrack-oom.pickle
  local theirs=$work/torch.pickle theirs_expandable=$work/torch-expandable.pickle
  check "training writes a snapshot" "$out/train" --device cuda --epochs 2 --no-table --snapshot "$ours"
  check "training with expandable segments writes one" env MEMTRACK_ALLOC_CONF=expandable_segments:True \
    "$out/train" --device cuda --epochs 2 --no-table --snapshot "$ours_expandable"
  check "training that runs out of memory writes one" ends_with 1 "out of memory on cuda:0" \
    "$out/train" --device cuda --epochs 1 --capacity "$OOM_CAPACITY" --snapshot "$ours_oom"
  check "PyTorch makes a snapshot" with_python scripts/torch/make_snapshot.py "$theirs"
  check "PyTorch makes one with expandable segments" \
    with_python scripts/torch/make_snapshot.py "$theirs_expandable" --expandable
  check "PyTorch's viewer shows memtrack's snapshots, in PyTorch's form" \
    with_files "$ours" "$ours_expandable" "$ours_oom" "$theirs" "$theirs_expandable" -- \
    with_python scripts/torch/check_snapshots.py --of-torch "$theirs" --of-torch "$theirs_expandable" \
    "$ours" "$ours_expandable" "$ours_oom" && cat "$log"
  check "memtrack replays the snapshots that PyTorch made" \
    with_files "$theirs" "$theirs_expandable" -- "$out/memtrack" replay "$theirs" "$theirs_expandable" && cat "$log"
}

run_peers() {
  check "memtrack beside its peers" with_python scripts/peers --built "$out" --seconds "${PEERS_SECONDS:-140}"
  # What one peer fails at leaves the others' figures.
  [ $? = "$NOT_THERE" ] || cat "$log"
}
