#!/usr/bin/env python3
"""Shows memtrack's snapshots to PyTorch's own viewer, and compares their form with snapshots that PyTorch made.

    scripts/torch/check_snapshots.py --of-torch FILE --of-torch FILE... SNAPSHOT SNAPSHOT...

Needs PyTorch, no GPU. Every command of `python3 -m torch.cuda._memory_viz` has to end well on each snapshot and show all
of it; every key has to be there, and no other but memtrack's own, with values of PyTorch's types. Exits with 77 without PyTorch, with 1 after
a difference.
"""

import argparse
import base64
import concurrent.futures
import json
import os
import pickle
import re
import site
import subprocess
import sys
import tempfile
from pathlib import Path

NOT_THERE = 77
# What memtrack adds to PyTorch's form, which PyTorch's tools pass over.
OWN_KEYS = {"snapshot": {"memtrack_history"}}
# The viewer downloads the program that draws flame graphs unless it is in ~/.cache. Here it gets one that shows its input.
SHOW_INPUT = "#!/bin/sh\nexec cat\n"
# PyTorch 2.11's command `compare` fails on every snapshot; what it means to call is this.
COMPARE = """
import pickle, sys
from torch.cuda._memory_viz import compare
before, after, output = sys.argv[1:]
segments = [pickle.load(open(path, "rb"))["segments"] for path in (before, after)]
open(output, "w").write(compare(*segments))
"""


def reserved(snapshot):
    return sum(segment["total_size"] for segment in snapshot["segments"])


def flame_graph_bytes(text):
    """What the lines that a flame graph is drawn from add up to."""
    return sum(int(line.rsplit(" ", 1)[1]) for line in text.splitlines())


def shown_data(page):
    """The snapshot within a page that the viewer wrote."""
    found = re.search(r"const local_files = (\[.*?\])$", page, re.MULTILINE)
    return pickle.loads(base64.b64decode(json.loads(found.group(1))[0]["base64"])) if found else None


class Viewer:
    """Runs the viewer's commands, and says what is wrong with what came out."""

    def __init__(self, folder):
        self.folder = folder
        draw = folder / ".cache/flamegraph.pl"
        draw.parent.mkdir()
        draw.write_text(SHOW_INPUT)
        draw.chmod(0o755)
        self.environment = {**os.environ, "HOME": str(folder), "PYTHONUSERBASE": site.getuserbase()}

    def run(self, command, output=None):
        told = subprocess.run([sys.executable, *map(str, command)], env=self.environment, capture_output=True, text=True,
                              timeout=120)
        if told.returncode != 0:
            return None, f"exit status {told.returncode}: {told.stderr.strip()[-600:]}"
        text = output.read_text() if output else told.stdout
        return text, None if text.strip() else "it shows nothing"

    def on_one(self, command, path, snapshot):
        name, *options = command.split()
        output = None if name in ("stats", "trace") else self.folder / f"{path.stem}-{command.replace(' ', '')}.out"
        written = ["-o", output] if output else []
        text, problem = self.run(["-m", "torch.cuda._memory_viz", name, path, *options, *written], output)
        if problem:
            return problem
        if name == "stats" and f"segments: {len(snapshot['segments'])}" not in text:
            return "it does not count all segments"
        if name == "trace":
            entries = sum(len(entries) for entries in snapshot["device_traces"])
            if f"{entries} entries" not in text:
                return f"it does not show {entries} entries"
        if name in ("segments", "memory"):
            return self.adds_up(text, reserved(snapshot))
        if name.endswith("_plot") and shown_data(text) != snapshot:
            return "the page does not hold the snapshot"
        return None

    def on_two(self, before, after):
        (first, one), (second, two) = before, after
        output = self.folder / f"{first.stem}-{second.stem}-compare.out"
        text, problem = self.run(["-c", COMPARE, first, second, output], output)
        if problem:
            return problem
        key = lambda segment: (segment["address"], segment["total_size"])
        both = {key(segment) for segment in one["segments"]} & {key(segment) for segment in two["segments"]}
        return self.adds_up(text, reserved(one) + reserved(two) - 2 * sum(size for _, size in both))

    @staticmethod
    def adds_up(text, expected):
        found = flame_graph_bytes(text)
        return None if found == expected else f"its lines add up to {found} bytes, not {expected}"


class Form:
    """The keys of each kind of dict in snapshots, and the types of their values."""

    def __init__(self):
        self.kinds = {}

    def add(self, kind, values):
        known = self.kinds.setdefault(kind, {"always": set(values), "ever": {}})
        known["always"] &= set(values)
        for key, value in values.items():
            known["ever"].setdefault(key, set()).add(type(value).__name__)

    def read(self, snapshot):
        self.add("snapshot", snapshot)
        self.add("allocator_settings", snapshot["allocator_settings"])
        for annotation in snapshot["external_annotations"]:
            self.add("annotation", annotation)
        for segment in snapshot["segments"]:
            self.add("segment", segment)
            self.frames(segment)
            for block in segment["blocks"]:
                self.add("block", block)
                self.frames(block)
        for entries in snapshot["device_traces"]:
            for entry in entries:
                self.add(f"entry {entry['action']}", entry)
                self.frames(entry)

    def frames(self, values):
        for frame in values.get("frames", ()):
            self.add("frame", frame)

    def differences(self, torch):
        """What this form has that PyTorch's does not, and the other way round. Kinds that only one has are passed over."""
        for kind in sorted(self.kinds.keys() & torch.kinds.keys()):
            ours, theirs = self.kinds[kind], torch.kinds[kind]
            # An entry has call sites only where they were recorded.
            optional = {"frames"} if kind.startswith("entry") else set()
            for key in sorted(theirs["always"] - ours["always"] - optional):
                yield f"{kind}: `{key}` is missing"
            for key in sorted(ours["ever"].keys() - theirs["ever"].keys() - optional - OWN_KEYS.get(kind, set())):
                yield f"{kind}: `{key}` is no key of PyTorch's"
            for key in sorted(ours["ever"].keys() & theirs["ever"].keys()):
                if not ours["ever"][key] <= theirs["ever"][key]:
                    yield f"{kind}: `{key}` is {ours['ever'][key]}, in PyTorch {theirs['ever'][key]}"


def load(paths):
    return [(path, pickle.loads(path.read_bytes())) for path in paths]


def view_all(snapshots, folder):
    """Runs every command on every snapshot, side by side; returns (what, problem) pairs."""
    viewer = Viewer(folder)
    commands = ("stats", "trace", "segments", "memory", "trace_plot", "trace_plot -s", "segment_plot")
    with concurrent.futures.ThreadPoolExecutor(max_workers=8) as pool:
        jobs = [(f"{command} {path.name}", pool.submit(viewer.on_one, command, path, snapshot))
                for path, snapshot in snapshots for command in commands]
        jobs += [(f"compare {before[0].name} {after[0].name}", pool.submit(viewer.on_two, before, after))
                 for before, after in zip(snapshots, snapshots[1:])]
        return [(what, job.result()) for what, job in jobs]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--of-torch", type=Path, action="append", required=True, help="a snapshot that PyTorch made")
    parser.add_argument("snapshots", type=Path, nargs="+", help="memtrack's")
    arguments = parser.parse_args()
    told = subprocess.run([sys.executable, "-c", "import torch.cuda._memory_viz"], capture_output=True, text=True)
    if told.returncode != 0:
        print((told.stderr.strip().splitlines() or ["python3 cannot import torch"])[-1])
        return NOT_THERE
    snapshots = load(arguments.snapshots)
    for path, snapshot in snapshots:
        entries = sum(len(entries) for entries in snapshot["device_traces"])
        print(f"{path.name}: {len(snapshot['segments'])} segments, {reserved(snapshot)} bytes, {entries} entries")

    problems = []
    with tempfile.TemporaryDirectory() as folder:
        shown = view_all(snapshots, Path(folder))
    problems += [f"{what}: {problem}" for what, problem in shown if problem]
    print(f"{len(shown)} commands of the viewer")

    theirs, ours = Form(), Form()
    for _, snapshot in load(arguments.of_torch):
        theirs.read(snapshot)
    for _, snapshot in snapshots:
        ours.read(snapshot)
    problems += ours.differences(theirs)
    print(f"{len(ours.kinds.keys() & theirs.kinds.keys())} kinds of dicts compared: "
          f"{', '.join(sorted(ours.kinds.keys() & theirs.kinds.keys()))}")
    print("\n".join(problems))
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
