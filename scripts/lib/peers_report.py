"""What scripts/peers prints: medians of all rounds, their ratios to the faster of PyTorch's policies, spreads and times.

A result is what a peer prints as a JSON object, with the number of its round. Nothing here runs a program.
"""

import statistics

TORCH = ("torch", "torch_expandable")
OURS = ("memtrack", "buffers")
MOVED = "pages moved"
PEAK = "reserved / requested peak"
# Tables of a dozen columns fit a screen only with short names.
SHORT = {"memtrack": "raw", "expandable": "exp"}


def is_ours(peer):
    return peer.startswith(OURS)


def short(peer):
    for long, little in SHORT.items():
        peer = peer.replace(long, little)
    return peer


def size_text(size):
    for unit, step in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= step:
            return f"{size // step} {unit}"
    return f"{size} B"


def number_text(value):
    return "-" if value is None else f"{value:.3f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def rows_of(result):
    """The rows of the table that a result fills, as (row, value)."""
    bench = result["bench"]
    if bench == "pair":
        yield f"pair, {size_text(result['bytes'])}: ns", result["ns"]
    elif bench == "churn":
        yield "churn: ns", result["ns"]
    elif bench == "threads":
        yield f"pair, threads: {result['threads']}: ns", result["ns"]
    elif bench == "replay":
        trace = result["trace"]
        yield f"{trace}: warm, ns a step", result["ns"]
        yield f"{trace}: cold, ms", result["cold_ms"]
        if result["reserved_peak"] >= 0:
            yield f"{trace}: {PEAK}", result["reserved_peak"] / result["requested_peak"]
        if result["moved_cold"] >= 0:
            yield f"{trace}: {MOVED}, cold", result["moved_cold"]
            yield f"{trace}: {MOVED}, warm", result["moved_warm"]


def table_of(results):
    """Row, then peer, then the values of all rounds."""
    table = {}
    for result in results:
        for row, value in rows_of(result):
            table.setdefault(row, {}).setdefault(result["peer"], []).append(value)
    return table


def faster_torch(values, of=statistics.median):
    """Which of PyTorch's policies has the lower median in a row, and that median; None where neither was measured."""
    figures = [(of(values[peer]), peer) for peer in TORCH if peer in values]
    return min(figures)[::-1] if figures else None


def ratios(table, peers, of=statistics.median):
    """Lines of row, the faster policy, and each peer's median over its; or what `of` makes of the rounds, in place of the median."""
    lines = []
    for row, values in table.items():
        best = faster_torch(values, of)
        if MOVED in row or best is None or best[1] <= 0:
            continue
        lines.append([row, f"{short(best[0])} {number_text(best[1])}",
                      *(f"{of(values[peer]) / best[1]:.3f}" if peer in values else "-" for peer in peers)])
    return lines


def spread_text(values):
    """How far the lowest and the highest are from the median, in % of it."""
    if not values:
        return "-"
    middle = statistics.median(values)
    if middle == 0:
        return "0" if max(values) == min(values) == 0 else "-"
    low, high = (round(100 * (value / middle - 1)) for value in (min(values), max(values)))
    return "0" if low == high == 0 else f"{low:+d} {high:+d}"


def print_table(head, lines):
    widths = [max(len(line[place]) for line in [head, *lines]) for place in range(len(head))]
    for number, line in enumerate([head, *lines]):
        print("| " + " | ".join(text.ljust(width) for text, width in zip(line, widths)) + " |")
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")


def print_equal_peaks(results, peers):
    for ours, theirs in (("memtrack", "torch"), ("memtrack_expandable", "torch_expandable")):
        peaks = {}
        for result in results:
            if result["bench"] == "replay" and result["peer"] in (ours, theirs):
                peaks.setdefault(result["trace"], set()).add(int(result["reserved_peak"]))
        if peaks and {ours, theirs} <= set(peers):
            equal = sum(len(values) == 1 for values in peaks.values())
            print(f"reserved peaks of {ours} and {theirs} equal to the byte on {equal} of {len(peaks)} traces")


def scopes_counted(results):
    """Whether an open scope counted what memtrack allocated, in each result of a peer that is to have one; says so."""
    measured = [result for result in results
                if is_ours(result["peer"]) and not result["peer"].endswith("_no_scope") and "owned" in result]
    empty = [result for result in measured if result["owned"] <= 0]
    if empty:
        print(f"FAILED   no scope counted the allocations of {empty[0]['peer']}, {empty[0]['bench']}")
    elif measured:
        print(f"statistics and owners on, and in each of memtrack's {len(measured)} results an open scope that counted its allocations")
    return not empty


def print_seconds(results, peers):
    """How long a turn of each peer took, and its parts."""
    seconds = {}
    for result in results:
        if result["bench"] == "part":
            seconds.setdefault(result["peer"], {}).setdefault(result["part"], []).append(result["seconds"])
    parts = ["pair", "churn", "threads", "replay", "turn"]
    lines = []
    for peer in peers:
        taken = seconds.get(peer, {})
        lines.append([short(peer), *(f"{statistics.median(taken[part]):.1f}" if part in taken else "-" for part in parts)])
    print("\nseconds a turn, medians; a turn has the program's start and end as well\n")
    print_table(["", *parts], lines)


def report(results, peers):
    """Prints everything; returns whether the results are what they are to be."""
    table = table_of(results)
    heads = [short(peer) for peer in peers]
    print("\nmedians of all rounds; raw is memtrack by address, exp is with expandable segments, warm page moves are per pass\n")
    print_table(["", *heads], [[row, *(number_text(statistics.median(values[peer])) if peer in values else "-" for peer in peers)]
                               for row, values in table.items()])
    others = [peer for peer in peers if peer not in TORCH]
    lines = ratios(table, others)
    if lines and others:
        print("\nratios of medians to the faster of PyTorch's two policies in that row; below 1 is cheaper than PyTorch\n")
        print_table(["", "faster", *(short(peer) for peer in others)], lines)
        # A core that changes its pace by half between two turns is in the medians of few rounds, and not in the fastest round of each.
        times = {row: values for row, values in table.items() if PEAK not in row}
        print("\nthe same of the fastest round of each, on either side\n")
        print_table(["", "faster", *(short(peer) for peer in others)], ratios(times, others, min))
    spreads = [[row, *(spread_text(values.get(peer)) for peer in peers)] for row, values in table.items()]
    spreads = [line for line in spreads if not set(line[1:]) <= {"0", "-"}]
    if spreads:
        print("\nspread: the lowest and the highest round, in % of the median; rows without any are left out\n")
        print_table(["", *heads], spreads)
    print_seconds(results, peers)
    print()
    print_equal_peaks(results, peers)
    return scopes_counted(results)
