#!/usr/bin/env python3
"""Lets PyTorch write a snapshot with a history: two streams, a private pool, annotations, live blocks, an out of memory.

    scripts/torch/make_snapshot.py FILE [--expandable]

Needs PyTorch and a GPU; exits with 77 without them.
"""

import argparse
import os
import sys

NOT_THERE = 77
MIB = 1 << 20


def make(torch, path):
    cuda = torch.cuda
    total = cuda.get_device_properties(0).total_memory
    cuda.memory._record_memory_history(enabled="all", context="all", stacks="python", global_record_annotations=True)
    side = cuda.Stream(0)

    def block(size):
        return torch.empty(size, dtype=torch.uint8, device="cuda:0")

    held = []
    with torch.profiler.record_function("forward"):
        for step in range(20):
            held.append(block(1000 * (step + 1)))
            held.append(block((step + 1) * MIB + 5))
            if step % 3 == 0:
                del held[step // 2]
        with cuda.stream(side):
            held.append(block(3 * MIB))
            held.append(block(700))
    # Used on the side stream, whose work is long done when the next block is asked for.
    held[-3].record_stream(side)
    del held[-3]
    cuda.synchronize(0)
    pool = cuda.MemPool()
    with cuda.use_mem_pool(pool, 0):
        held.append(block(30 * MIB))
        held.append(block(2000))
    cuda.set_per_process_memory_fraction(400 * MIB / total, 0)
    try:
        block(1000 * MIB)
        raise SystemExit("the limit of 400 MiB did not hold")
    except torch.OutOfMemoryError as error:
        print(f"out of memory, as meant: {str(error)[:80]}")
    cuda.set_per_process_memory_fraction(1.0, 0)
    del held[:8]
    cuda.empty_cache()
    cuda.memory._dump_snapshot(path)
    print(f"{path}: {os.path.getsize(path)} bytes, {cuda.memory_reserved(0)} reserved")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", help="the pickle")
    parser.add_argument("--expandable", action="store_true", help="with expandable segments")
    arguments = parser.parse_args()
    os.environ.pop("PYTORCH_ALLOC_CONF", None)
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True" if arguments.expandable else ""
    try:
        import torch

        torch.cuda.init()
    except Exception as error:  # No PyTorch, no GPU, no driver: each with an error of its own.
        print(error)
        return NOT_THERE
    make(torch, arguments.file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
