#!/usr/bin/env python3
"""Proves on a GPU that memtrack's records of a tch program are torch.cuda.memory_stats, to the byte.

    proof/prove.py LIBRARY [--device N] [--scenarios NAME...] [--perturb FIGURE | --perturb-all]
    proof/prove.py LIBRARY --imitation

LIBRARY is libmemtrack_tch_proof.so, loaded after torch, so that tch and Python have one libtorch. Each time that memtrack reads its
source, Python asks PyTorch at the same moment; each record and the summary are compared with what follows from PyTorch's own
counters. Prints a table of what was compared, and exits with 1 at the first difference.

--perturb adds a byte to one of memtrack's figures, as record.peak_bytes: then the exit status must be 1. --perturb-all does that to
each figure that was compared, in turn, after the proof, and wants every one of them noticed.
--imitation tries all of this without torch and without a GPU, on a small imitation of the allocator. It proves nothing of PyTorch.
"""

import argparse
import ctypes
import json
import sys

from compare import Comparison, Difference

SCENARIOS = ("training", "nested", "retry", "oom", "empty-cache")
# What only PyTorch's own allocator has: limits with retries.
NATIVE_ONLY = ("retry", "oom")
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_char_p)


class Library:
    """The Rust half."""

    def __init__(self, path):
        self._library = ctypes.CDLL(path)
        self._library.memtrack_tch_proof_run.argtypes = [
            ctypes.c_char_p, ctypes.c_int32, CALLBACK, ctypes.c_char_p, ctypes.c_size_t,
        ]
        self._library.memtrack_tch_proof_open.argtypes = [ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t]
        self._library.memtrack_tch_proof_open.restype = None
        self._library.memtrack_tch_proof_limit_imitation.argtypes = [ctypes.c_int64]

    def run(self, scenario, device, tell):
        """Runs a scenario; what `tell` raises is raised here, for it cannot pass through Rust."""
        raised = []

        def callback(text):
            if raised:
                return
            try:
                tell(json.loads(text))
            except BaseException as error:  # pylint: disable=broad-except
                raised.append(error)

        message = ctypes.create_string_buffer(2048)
        status = self._library.memtrack_tch_proof_run(
            scenario.encode(), device, CALLBACK(callback), message, len(message)
        )
        if raised:
            raise raised[0]
        if status != 0:
            raise Difference(f"{scenario}: {message.value.decode()}")

    def open(self, device):
        """Why a source of this device cannot be opened."""
        message = ctypes.create_string_buffer(2048)
        self._library.memtrack_tch_proof_open(device, message, len(message))
        return message.value.decode()

    def imitation(self, reset=False):
        """The imitation's counters, under PyTorch's names."""
        figures = (ctypes.c_int64 * 6)()
        self._library.memtrack_tch_proof_imitation(int(reset), figures)
        names = (
            "allocated_bytes.all.current", "allocated_bytes.all.peak", "reserved_bytes.all.current",
            "reserved_bytes.all.peak", "num_alloc_retries", "num_ooms",
        )
        return dict(zip(names, figures))

    def limit_imitation(self, limit_bytes):
        """Limits the imitation's reserved bytes."""
        self._library.memtrack_tch_proof_limit_imitation(limit_bytes)


class Torch:
    """PyTorch's side, asked by Python alone."""

    def __init__(self, device):
        import torch

        self._cuda = torch.cuda
        self.device = device
        self._cuda.init()
        self.backend = self._cuda.get_allocator_backend()
        self.title = f"{torch.__version__}, {self._cuda.get_device_name(device)}, backend {self.backend}"

    def statistics(self):
        return self._cuda.memory_stats(self.device)

    def reset_peak(self):
        self._cuda.reset_peak_memory_stats(self.device)

    def limit(self, headroom_bytes):
        """Lets PyTorch reserve so many bytes more than now; None takes the limit away."""
        fraction = 1.0
        if headroom_bytes is not None:
            total = self._cuda.get_device_properties(self.device).total_memory
            fraction = (self.statistics()["reserved_bytes.all.current"] + headroom_bytes) / total
        self._cuda.set_per_process_memory_fraction(fraction, self.device)

    def empty_cache(self):
        self._cuda.empty_cache()


class Imitation:
    """The imitation's side, asked by another way than memtrack's."""

    device = -1
    backend = "native"
    title = "an imitation of PyTorch's allocator, no GPU: this proves nothing of PyTorch"

    def __init__(self, library):
        self._library = library

    def statistics(self):
        return self._library.imitation()

    def reset_peak(self):
        self._library.imitation(reset=True)

    def limit(self, headroom_bytes):
        limit_bytes = 2**62
        if headroom_bytes is not None:
            limit_bytes = self.statistics()["reserved_bytes.all.current"] + headroom_bytes
        self._library.limit_imitation(limit_bytes)

    def empty_cache(self):
        pass


def require(condition, message):
    if not condition:
        raise Difference(message)


class Proof:
    """Runs scenarios, and knows of each what must have happened in it: a scenario in which nothing happens proves nothing."""

    def __init__(self, library, torch, perturb):
        self.library, self.torch = library, torch
        self.comparison = Comparison(torch.statistics, torch.backend == "native", perturb)
        self._before = None
        self._perturbs = perturb is not None

    def run(self, scenario):
        self.comparison.begin(scenario)
        self.library.run(scenario, self.torch.device, self.tell)
        {
            "training": self._after_training,
            "nested": self._after_nested,
            "retry": self._after_retry,
            "oom": self._after_oom,
            "empty-cache": self._after_empty_cache,
        }[scenario]()

    def tell(self, event):
        if event["event"] == "alone begins":
            self.torch.reset_peak()
        if event["event"] == "summary" and not self._perturbs:
            print(event["text"])
        if self.comparison.tell(event):
            return
        if event["event"] == "limit":
            self.torch.limit(event.get("headroom_bytes"))
        elif event["event"] == "cached":
            self._before = self.torch.statistics()
        elif event["event"] == "emptied":
            self._emptied(event["at_least_bytes"])
        else:
            raise Difference(f"an event that is not known: {event}")

    def _emptied(self, at_least_bytes):
        """empty_cache of Rust's gave memory back, and left nothing for Python's to give back."""
        after = self.torch.statistics()
        given_back = self._before["reserved_bytes.all.current"] - after["reserved_bytes.all.current"]
        require(given_back >= at_least_bytes, f"empty_cache gave back {given_back} bytes, expected at least {at_least_bytes}")
        self.torch.empty_cache()
        torch = self.torch.statistics()
        for figure in ("allocated_bytes.all.current", "reserved_bytes.all.current"):
            self.comparison.agree("empty_cache", figure, after[figure], torch[figure])

    def _after_training(self):
        for name in ("load_batch", "forward", "backward", "optimizer_step"):
            records = self.comparison.records(name)
            require(len(records) >= 3, f"{name} was recorded {len(records)} times")
            require(all(record["windows"] == 1 for record in records), f"{name} has boundaries within")
        if self.torch.device >= 0:
            forward = self.comparison.records("forward")
            require(all(record["peak_delta_bytes"] > 0 for record in forward), "no forward pass took memory")

    def _after_nested(self):
        outer, inner = self.comparison.records("outer")[0], self.comparison.records("inner")[0]
        require(inner["peak_delta_bytes"] >= 256 << 20, "the inner function did not take what it should")
        require(outer["peak_bytes"] >= inner["peak_bytes"], "the outer peak is below the inner one")
        require(
            outer["last_mark_bytes"] < outer["peak_bytes"],
            "PyTorch's mark at the outer function's end is its peak, so that no reset was between: nothing is proved",
        )

    def _after_retry(self):
        record = self.comparison.records("retry")[0]
        require(record["retry_count"] >= 1 and record["oom_count"] == 0, f"not one retry without a failure: {record}")

    def _after_oom(self):
        for name in ("too_much", "oom"):
            record = self.comparison.records(name)[0]
            require(record["oom_count"] == 1, f"{name} ran out of memory {record['oom_count']} times, not once")

    def _after_empty_cache(self):
        record = self.comparison.records("empty cache")[0]
        require(record["reserved_after_bytes"] < record["reserved_before_bytes"], "nothing was given back")


def perturb_all(library, torch, compared):
    """Runs a scenario again for each figure that was compared, made wrong by a byte; each must be noticed."""
    tried = {}
    for (scenario, what), figures in compared.items():
        for figure in figures:
            tried.setdefault(f"{what}.{figure}", scenario)
    for name, scenario in tried.items():
        try:
            Proof(library, torch, name).run(scenario)
            raise AssertionError(f"{name} was wrong by a byte in {scenario}, and nothing noticed")
        except Difference as difference:
            require(f" {name}: memtrack says" in str(difference), f"{name} was made wrong, but this was noticed: {difference}")
        finally:
            # The scenario ended early, perhaps with a limit set.
            torch.limit(None)
    return len(tried)


def main():
    parser = argparse.ArgumentParser(description="Compares memtrack's records of tch with torch.cuda.memory_stats.")
    parser.add_argument("library")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS)
    parser.add_argument("--perturb", metavar="FIGURE")
    parser.add_argument("--perturb-all", action="store_true")
    parser.add_argument("--imitation", action="store_true")
    options = parser.parse_args()
    if options.imitation:
        library = Library(options.library)
        torch = Imitation(library)
    else:
        # First, so that the library finds its libtorch loaded.
        import torch as _

        library = Library(options.library)
        error = library.open(options.device)
        if "is not made yet" not in error:
            print(f"FAILED: before PyTorch has made its allocator, a source says: {error or 'nothing'}")
            return 1
        torch = Torch(options.device)
    print(torch.title)
    names = options.scenarios or [name for name in SCENARIOS if torch.backend == "native" or name not in NATIVE_ONLY]
    proof = Proof(library, torch, options.perturb)
    try:
        for name in names:
            proof.run(name)
    except Difference as difference:
        print(f"FAILED: {difference}")
        return 1
    print("\n".join(proof.comparison.table()))
    if not proof.comparison.perturbed:
        print(f"FAILED: {options.perturb} was never compared")
        return 1
    if options.perturb_all:
        try:
            noticed = perturb_all(library, torch, proof.comparison.compared)
        except (AssertionError, Difference) as error:
            print(f"FAILED: {error}")
            return 1
        print(f"{noticed} figures made wrong by a byte, one at a time: each was noticed")
    print(f"{proof.comparison.total()} figures of memtrack's agree with PyTorch's, to the byte; none differs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
