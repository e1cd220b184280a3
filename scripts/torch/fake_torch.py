"""Stands in for PyTorch without a GPU: answers as a recorded program says, and insists on that program's calls."""

from types import SimpleNamespace


class OutOfMemoryError(RuntimeError):
    pass


class Stream:
    def __init__(self, handle):
        self.cuda_stream = handle


class Tensor:
    def __init__(self, player, address):
        self.player, self.address = player, address

    def data_ptr(self):
        return self.address

    def record_stream(self, stream):
        self.player.called("record_stream", self.player.block_at(self.address), stream.cuda_stream)

    def __del__(self):
        self.player.freed(self.address)


class Player:
    """Goes through a recorded program as calls come in. Streams have their numbers for handles."""

    def __init__(self, recorded):
        self.recorded, self.place = recorded, 0
        self.statistics = dict(recorded["initial_stats"])
        self.blocks = {}
        self.refused = set()
        self.current = 0
        self.over = False

    def pass_over_refused(self):
        """A block that was never had is freed without a call."""
        steps = self.recorded["ops"]
        while self.place < len(steps) and steps[self.place]["op"][0] == "free" and steps[self.place]["op"][1] in self.refused:
            self.place += 1

    def called(self, name, *arguments):
        self.pass_over_refused()
        step = self.recorded["ops"][self.place]
        if step["op"] != [name, *arguments]:
            raise AssertionError(f"step {self.place} is {step['op']}, called was {[name, *arguments]}")
        self.place += 1
        self.statistics.update(step["changed"])
        return step

    def allocate(self, size, stream):
        self.pass_over_refused()
        block = self.recorded["ops"][self.place]["op"][1]
        step = self.called("alloc", block, size, stream)
        if "oom" in step:
            self.refused.add(block)
            raise OutOfMemoryError(step["oom"])
        self.blocks[step["ptr"]] = block
        return step["ptr"]

    def block_at(self, address):
        return self.blocks[address]

    def freed(self, address):
        # What is held at the end goes without a step.
        if not self.over:
            self.called("free", self.blocks.pop(address))

    def snapshot(self):
        # An out of memory has no address in PyTorch's own entries.
        trace = [dict(action=action, size=size, stream=stream) | ({} if address is None else {"addr": address})
                 for action, address, size, stream in self.recorded["trace"]]
        return {"device_traces": [trace], "segments": self.recorded["final_segments"], "allocator_settings": {}}


class StreamContext:
    def __init__(self, player, stream):
        self.player, self.stream = player, stream

    def __enter__(self):
        self.player.current = self.stream.cuda_stream

    def __exit__(self, *error):
        self.player.current = 0


def fake_torch(player):
    """A module `torch` as far as the recorder uses it."""
    handles = iter(range(1, 100))
    memory = SimpleNamespace(_record_memory_history=lambda **options: None, _snapshot=lambda device: player.snapshot())
    properties = SimpleNamespace(total_memory=player.recorded["total_memory"])

    def step(name):
        return lambda device=None: player.called(name)

    cuda = SimpleNamespace(
        init=lambda: None,
        set_device=lambda device: None,
        default_stream=lambda device: Stream(0),
        Stream=lambda device: Stream(next(handles)),
        stream=lambda stream: StreamContext(player, stream),
        get_device_properties=lambda device: properties,
        memory_stats=lambda device: dict(player.statistics),
        caching_allocator_alloc=lambda size, device, stream: player.allocate(size, stream.cuda_stream),
        caching_allocator_delete=player.freed,
        set_per_process_memory_fraction=lambda fraction, device: None,
        synchronize=step("sync"),
        empty_cache=step("empty_cache"),
        reset_peak_memory_stats=step("reset_peak"),
        reset_accumulated_memory_stats=step("reset_accumulated"),
        mem_get_info=lambda device: (1, 2),
        memory=memory,
    )
    return SimpleNamespace(
        __version__="2.11.0",
        OutOfMemoryError=OutOfMemoryError,
        uint8="uint8",
        empty=lambda size, dtype, device: Tensor(player, player.allocate(size, player.current)),
        cuda=cuda,
    )
