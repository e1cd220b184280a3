#!/usr/bin/env python3
"""Runs seeded random programs on PyTorch's allocator and writes what it answered, for `memtrack replay`.

    scripts/torch/record_program.py FOLDER [--seed N] [--steps N] [--only NAME]

Needs PyTorch and a GPU. Each configuration runs in a process of its own. scripts/torch/README.md says what the files hold.
"""

import argparse
import concurrent.futures
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

from programs import CONFIGURATIONS, STREAMS, draw

CONFIGURATION_VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"
NOT_THERE = 77


class Card:
    """PyTorch's allocator on the first GPU, through what PyTorch offers Python."""

    def __init__(self, torch):
        self.torch, self.cuda = torch, torch.cuda
        self.cuda.init()
        self.cuda.set_device(0)
        self.streams = [self.cuda.default_stream(0)] + [self.cuda.Stream(0) for _ in range(STREAMS - 1)]
        self.total_memory = self.cuda.get_device_properties(0).total_memory
        self.out_of_memory = getattr(torch, "OutOfMemoryError", None) or self.cuda.OutOfMemoryError

    def statistics(self):
        return {name: int(value) for name, value in self.cuda.memory_stats(0).items()}

    def allocate_bare(self, size, stream):
        return self.cuda.caching_allocator_alloc(size, 0, self.streams[stream])

    def free_bare(self, address):
        self.cuda.caching_allocator_delete(address)

    def allocate_tensor(self, size, stream):
        """For blocks that other streams use: PyTorch takes no bare address there. No kernel runs."""
        with self.cuda.stream(self.streams[stream]):
            return self.torch.empty(size, dtype=self.torch.uint8, device="cuda:0")

    def record_stream(self, tensor, stream):
        tensor.record_stream(self.streams[stream])

    def set_limit(self, limit):
        fraction = min(limit / self.total_memory, 1.0)
        self.cuda.set_per_process_memory_fraction(fraction, 0)
        return fraction

    def record_history(self):
        # Without call sites, which would cost most of the time.
        self.cuda.memory._record_memory_history(enabled="all", context=None)

    def snapshot(self):
        return self.cuda.memory._snapshot(0)

    def new_pool(self):
        return self.cuda.MemPool()

    def enter_pool(self, pool):
        entered = self.cuda.use_mem_pool(pool, 0)
        entered.__enter__()
        return entered


class Recorder:
    """Performs steps, and keeps what was answered."""

    def __init__(self, card, shared):
        self.card, self.shared = card, shared
        self.held = {}
        self.pools, self.entered = {}, None
        self.last = card.statistics()
        self.records = []

    def allocate(self, block, size, stream):
        try:
            if block in self.shared:
                tensor = self.card.allocate_tensor(size, stream)
                self.held[block] = tensor
                return {"ptr": tensor.data_ptr()}
            self.held[block] = self.card.allocate_bare(size, stream)
            return {"ptr": self.held[block]}
        except self.card.out_of_memory as error:
            return {"oom": str(error)}

    def free(self, block):
        held = self.held.pop(block, None)
        if held is not None and block not in self.shared:
            self.card.free_bare(held)

    def perform(self, step):
        """Does it; returns the step as the file has it, and the answer."""
        name, *arguments = step
        answer = {}
        if name == "alloc":
            answer = self.allocate(*arguments)
        elif name == "free":
            self.free(*arguments)
        elif name == "record_stream":
            block, stream = arguments
            if block in self.held:
                self.card.record_stream(self.held[block], stream)
        elif name == "sync":
            self.card.cuda.synchronize(0)
        elif name == "empty_cache":
            self.card.cuda.empty_cache()
        elif name == "reset_peak":
            self.card.cuda.reset_peak_memory_stats(0)
        elif name == "reset_accumulated":
            self.card.cuda.reset_accumulated_memory_stats(0)
        elif name == "set_limit":
            step = ("set_fraction", self.card.set_limit(*arguments))
        elif name == "pool_new":
            self.pools[arguments[0]] = self.card.new_pool()
        elif name == "pool_begin":
            self.entered = self.card.enter_pool(self.pools[arguments[0]])
        elif name == "pool_end":
            self.entered.__exit__(None, None, None)
            self.entered = None
        elif name == "pool_delete":
            # PyTorch deletes it when the last reference goes.
            del self.pools[arguments[0]]
        else:
            raise ValueError(f"there is no step {name}")
        return step, answer

    def record(self, step):
        step, answer = self.perform(step)
        now = self.card.statistics()
        changed = {name: value for name, value in now.items() if self.last.get(name) != value}
        self.last = now
        self.records.append({"op": list(step), **answer, "changed": changed})


def describe(snapshot):
    """A snapshot's history and segments, as the files have them."""
    trace = [[entry["action"], entry.get("addr"), entry["size"], entry["stream"]]
             for entry in (snapshot["device_traces"] or [[]])[0]]
    segment_keys = ("device", "address", "total_size", "allocated_size", "active_size", "requested_size", "stream",
                    "segment_type", "segment_pool_id", "is_expandable")
    block_keys = ("address", "size", "requested_size", "state")
    segments = [{**{key: segment.get(key) for key in segment_keys},
                 "blocks": [{key: block.get(key) for key in block_keys} for block in segment["blocks"]]}
                for segment in snapshot["segments"]]
    return trace, segments


def record(torch, program, name):
    """Runs a program from a fresh allocator, and returns the file's content."""
    configuration = program.configuration
    card = Card(torch)
    if configuration.limit is not None:
        card.set_limit(configuration.limit)
    card.record_history()
    initial = card.statistics()
    recorder = Recorder(card, program.shared)
    if configuration.pools:
        # Their names are known only once they are made.
        return as_golden(card, recorder, program, name, initial)
    for step in program.steps:
        recorder.record(step)
    snapshot = card.snapshot()
    trace, segments = describe(snapshot)
    content = {"name": name, "why": "random, from a seed", "torch": str(torch.__version__), "config": configuration.text,
               "total_memory": card.total_memory}
    if configuration.limit is not None:
        content["limit_bytes"] = configuration.limit
    return {**content, "initial_stats": initial, "ops": recorder.records, "trace": trace,
            "final_stats": card.statistics(), "final_segments": segments,
            "allocator_settings": snapshot.get("allocator_settings"),
            "mem_get_info": list(card.cuda.mem_get_info(0))}


def as_golden(card, recorder, program, name, initial):
    """The other form of files, which has steps for pools: objects, with statistics by number."""
    keys = sorted(initial)
    number = {key: place for place, key in enumerate(keys)}
    steps = [{"op": "init", "d": [[number[key], initial[key]] for key in keys if initial[key]]}]
    fields = {"alloc": ("id", "size", "stream"), "free": ("id",)}
    names = {"sync": "synchronize"}
    ids = {}
    for step in program.steps:
        recorder.record(step)
        record_ = recorder.records[-1]
        operation, *arguments = record_["op"]
        written = {"op": names.get(operation, operation)}
        if operation.startswith("pool_"):
            if operation == "pool_new":
                ids[arguments[0]] = list(recorder.pools[arguments[0]].id)
            written["pool"] = ids[arguments[0]]
        else:
            written.update(zip(fields.get(operation, ()), arguments))
        if operation == "alloc":
            written["ptr"] = record_.get("ptr")
        written["d"] = [[number[key], value] for key, value in record_["changed"].items()]
        steps.append(written)
    return {"name": name, "torch": str(card.torch.__version__), "initial_conf": program.configuration.text,
            "memory_fraction": 1.0, "device_total_memory": card.total_memory,
            "streams": [stream.cuda_stream for stream in card.streams], "keys": keys, "ops": steps}


def write(content, path):
    path.write_bytes(gzip.compress(json.dumps(content).encode(), mtime=0))


def summary(content):
    served = sum("ptr" in step and step["ptr"] is not None for step in content["ops"])
    changed = sum(len(step.get("changed", step.get("d", ()))) for step in content["ops"])
    refused = sum("oom" in step or step["op"] == "alloc" and step["ptr"] is None for step in content["ops"])
    return f"{len(content['ops'])} steps, {served} allocations served, {refused} refused, {changed} changes of statistics"


def record_here(arguments):
    """One configuration, in this process."""
    import torch

    configuration = next(known for known in CONFIGURATIONS if known.name == arguments.only)
    name = f"{configuration.name}-{arguments.seed}"
    content = record(torch, draw(arguments.seed, configuration, arguments.steps), name)
    write(content, arguments.folder / f"{name}.json.gz")
    print(f"{name}: {summary(content)}", flush=True)
    # What is still held goes with the process; PyTorch's own order of tearing down does not matter here.
    os._exit(0)


def record_all(arguments):
    """Each configuration in a process of its own, since PyTorch reads its configuration once."""
    told = subprocess.run([sys.executable, "-c", "import torch; torch.cuda.init(); print(torch.__version__)"],
                          capture_output=True, text=True, timeout=120)
    if told.returncode != 0:
        print((told.stderr.strip().splitlines() or ["python3 cannot import torch"])[-1])
        return NOT_THERE

    def record_one(configuration):
        environment = {**os.environ, CONFIGURATION_VARIABLE: configuration.text}
        environment.pop("PYTORCH_ALLOC_CONF", None)
        command = [sys.executable, __file__, str(arguments.folder), "--seed", str(arguments.seed), "--steps",
                   str(arguments.steps), "--only", configuration.name]
        return configuration, subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150)

    failed = False
    # Side by side: most of the time goes into starting PyTorch. They share the card's memory, of which they need little.
    with concurrent.futures.ThreadPoolExecutor(max_workers=5) as pool:
        for configuration, told in pool.map(record_one, CONFIGURATIONS):
            print(told.stdout, end="")
            if told.returncode != 0:
                failed = True
                print(f"{configuration.name}: exit status {told.returncode}\n{told.stderr}")
    return int(failed)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the files go")
    parser.add_argument("--seed", type=int, default=1, help="decides the programs")
    parser.add_argument("--steps", type=int, default=500, help="of each program")
    parser.add_argument("--only", choices=[known.name for known in CONFIGURATIONS],
                        help="this configuration alone; the environment must have set it up")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    return record_here(arguments) if arguments.only else record_all(arguments)


if __name__ == "__main__":
    sys.exit(main())
