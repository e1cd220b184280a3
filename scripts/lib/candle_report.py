"""What scripts/candle-check prints: the same training in several ways, round by round.

Each run leaves NAME.ROUND.json, the object of `candle-gpt --json`, and NAME.ROUND.err, what it and memtrack wrote to standard error.
Nothing here runs a program.
"""

import json
import pathlib
import re
import statistics
import sys

# Against which the others are set.
BASE = "plain"
MIB = 1 << 20


def read(folder):
    """Round, then name, then the run's object."""
    rounds = {}
    for path in sorted(pathlib.Path(folder).glob("*.json")):
        name, number, _ = path.name.split(".")
        run = json.loads(path.read_text())
        errors = path.with_suffix(".err")
        run["errors"] = errors.read_text() if errors.exists() else ""
        rounds.setdefault(int(number), {})[name] = run
    return rounds


def names_of(rounds):
    names = {name for runs in rounds.values() for name in runs}
    return sorted(names, key=lambda name: (name != BASE, name))


def ratios(rounds, name):
    """Of each round that has both: the median step beside the plain one of the same round."""
    pairs = [(runs[name], runs[BASE]) for runs in rounds.values() if name in runs and BASE in runs]
    return [ours["step_ms"]["median"] / base["step_ms"]["median"] for ours, base in pairs]


def size(text):
    """`1.50 GiB` in bytes, as far as two decimals tell."""
    number, unit = text.split()
    return float(number) * 1024 ** ("B", "KiB", "MiB", "GiB", "TiB").index(unit)


SIZE = r"([0-9.]+ (?:B|KiB|MiB|GiB|TiB))"


def said(errors):
    """What memtrack's preloaded library said at the end: (peak, reserved at most, retries, out of memory), each or None."""
    peak = re.search(rf"^  peak {SIZE}, at the end", errors, re.M)
    cache = re.search(rf"^  cache: .*reserved {SIZE} at most.*; (\d+) retr(?:y|ies), (\d+) out of memory", errors, re.M)
    return (
        size(peak[1]) if peak else None,
        size(cache[1]) if cache else None,
        int(cache[2]) if cache else None,
        int(cache[3]) if cache else None,
    )


def mib(value):
    return "-" if value is None else f"{value / MIB:.1f}"


def report(rounds):
    """Prints the table; whether all losses agree."""
    columns = "{:<10} {:>6} {:>11} {:>22} {:>12} {:>14} {:>12} {:>14} {:>12}"
    print(columns.format("", "rounds", "step, ms", "ratio (from - to)", "pool: used", "pool: reserved", "memtrack", "of it reserved",
                         "GPU in use"))
    for name in names_of(rounds):
        runs = [runs[name] for runs in rounds.values() if name in runs]
        last = runs[-1]
        step = statistics.median(run["step_ms"]["median"] for run in runs)
        compared = ratios(rounds, name)
        ratio = f"{statistics.median(compared):.4f} ({min(compared):.4f} - {max(compared):.4f})" if compared else "-"
        peak, reserved, _, _ = said(last["errors"])
        peak = last.get("memtrack_peak_bytes", last.get("allocated_peak_bytes", peak))
        reserved = last.get("reserved_peak_bytes", reserved)
        print(columns.format(name, len(runs), f"{step:.3f}", ratio, mib(last.get("pool_used_peak_bytes")),
                             mib(last.get("pool_reserved_peak_bytes")), mib(peak), mib(reserved), mib(last.get("device_used_bytes"))))
    print("sizes in MiB, of the last round; `memtrack` is the peak that it tells, for torch that of PyTorch's allocator")
    ours = [name for name in names_of(rounds) if name != "torch"]
    return losses_agree([runs[name] for name in ours for runs in rounds.values() if name in runs])


def losses_agree(runs):
    """Whether all runs have the same losses, digit for digit; says where not."""
    first = runs[0]["losses"]
    for run in runs[1:]:
        if run["losses"] != first:
            step = next((step for step, (a, b) in enumerate(zip(first, run["losses"])) if a != b), None)
            print(f"losses differ, first in step {step}: {first[step or 0]!r} and {run['losses'][step or 0]!r}")
            return False
    print(f"{len(runs)} runs of {len(first)} steps have the same losses, {first[0]!r} to {first[-1]!r}, to the last digit")
    return True


def peaks_agree(rounds):
    """Whether the peak that memtrack's epochs read is the one that the driver's pool kept in a run that nobody measured."""
    pairs = [(runs[BASE]["pool_used_peak_bytes"], runs["measured"].get("memtrack_peak_bytes"))
             for runs in rounds.values() if BASE in runs and "measured" in runs]
    print("; ".join(f"the pool {pool}, memtrack {told}" for pool, told in sorted(set(pairs), key=str)))
    return bool(pairs) and all(pool == told for pool, told in pairs)


def fraction(run, share):
    """The memory fraction that lets the cache have the peak and this share of what lay between it and what was reserved."""
    peak, reserved, _, _ = said(run["errors"])
    return (peak + share * (reserved - peak)) / run["device_total_bytes"]


def part(run, share):
    """The memory fraction that lets the cache have this share of the peak."""
    return share * said(run["errors"])[0] / run["device_total_bytes"]


def main(arguments):
    match arguments:
        case ["table", folder]:
            return 0 if report(read(folder)) else 1
        case ["peaks", folder]:
            return 0 if peaks_agree(read(folder)) else 1
        case ["fraction" | "part" as which, json_file, share]:
            path = pathlib.Path(json_file)
            run = json.loads(path.read_text()) | {"errors": path.with_suffix(".err").read_text()}
            print(f"{(fraction if which == 'fraction' else part)(run, float(share)):.9f}")
        case ["same", *json_files]:
            return 0 if losses_agree([json.loads(pathlib.Path(name).read_text()) for name in json_files]) else 1
        case ["retries", errors_file]:
            print(said(pathlib.Path(errors_file).read_text())[2] or 0)
        case _:
            print("usage: candle_report.py table FOLDER | peaks FOLDER | fraction JSON SHARE | part JSON SHARE | same JSON... | retries ERR", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
