"""Random allocation programs, drawn from a seed: lists of steps that know nothing of any allocator.

Sizes are drawn to the byte, so that two free blocks of one size, between which an allocator chooses by address, are
rare: addresses are the driver's, and differ from one process to the next. For the same reason nothing is busy: a block that
another stream used is freed and the device waited for in one go, so every event has completed when the allocator looks.
"""

import random

KIB, MIB = 1 << 10, 1 << 20
STREAMS = 3


class Configuration:
    """What a program is run under. `limit` is in bytes, None for no limit."""

    def __init__(self, name, text="", limit=None, pools=False):
        self.name, self.text, self.limit, self.pools = name, text, limit, pools


CONFIGURATIONS = [
    Configuration("default"),
    Configuration("default-limit", limit=500 * MIB),
    Configuration("expandable", "expandable_segments:True"),
    Configuration("expandable-limit", "expandable_segments:True", limit=450 * MIB),
    Configuration("max-split", "max_split_size_mb:64", limit=600 * MIB),
    Configuration("roundup", "roundup_power2_divisions:64", limit=700 * MIB),
    Configuration("gc", "garbage_collection_threshold:0.6", limit=600 * MIB),
    Configuration("pools", pools=True),
    Configuration("pools-expandable", "expandable_segments:True", pools=True),
]


class Program:
    """Draws steps one after the other, and keeps what is live."""

    def __init__(self, seed, configuration):
        # Only random() is drawn from: its values are the same in every version of Python.
        self.random = random.Random(f"{configuration.name} {seed}").random
        self.configuration = configuration
        self.steps = []
        self.live = {}
        # Blocks that a step names besides alloc and free; the recorder has to be able to.
        self.shared = set()
        self.used_elsewhere = set()
        self.block_count = self.pool_count = 0
        self.pools, self.entered = [], None

    def below(self, bound):
        return int(self.random() * bound)

    def pick(self, items):
        return items[self.below(len(items))]

    def bytes(self):
        draw = self.random()
        if draw < 0.45:
            return 1 + self.below(int(2 ** (9 + 11 * self.random())))
        if draw < 0.75:
            return MIB + 1 + self.below(9 * MIB)
        if draw < 0.95:
            return 10 * MIB + self.below(60 * MIB)
        return 70 * MIB + self.below(130 * MIB)

    def allocate(self):
        block = self.block_count
        self.block_count += 1
        stream = self.below(STREAMS)
        self.steps.append(("alloc", block, self.bytes(), stream))
        self.live[block] = stream
        if not self.configuration.pools and self.random() < 0.2:
            self.shared.add(block)

    def free(self):
        block = self.pick(sorted(self.live))
        del self.live[block]
        self.steps.append(("free", block))
        if block in self.used_elsewhere:
            self.steps.append(("sync",))

    def use_elsewhere(self):
        blocks = sorted(self.shared & self.live.keys())
        if blocks:
            block = self.pick(blocks)
            stream = (self.live[block] + 1 + self.below(STREAMS - 1)) % STREAMS
            self.used_elsewhere.add(block)
            self.steps.append(("record_stream", block, stream))

    def change_pool(self):
        if self.entered is not None:
            self.steps.append(("pool_end", self.entered))
            self.entered = None
        elif self.pools and self.random() < 0.3:
            self.steps.append(("pool_delete", self.pools.pop(self.below(len(self.pools)))))
        else:
            if len(self.pools) < 3:
                self.steps.append(("pool_new", self.pool_count))
                self.pools.append(self.pool_count)
                self.pool_count += 1
            self.entered = self.pick(self.pools)
            self.steps.append(("pool_begin", self.entered))

    def step(self):
        draw = self.random()
        if draw < 0.48:
            self.allocate()
        elif draw < 0.90:
            if self.live:
                self.free()
        elif draw < 0.93:
            if self.configuration.pools:
                self.change_pool()
            else:
                self.use_elsewhere()
        elif draw < 0.95:
            self.steps.append(("empty_cache",))
        elif draw < 0.97:
            self.steps.append(("reset_peak",))
        elif draw < 0.98:
            self.steps.append(("reset_accumulated",))
        elif draw < 0.99:
            self.steps.append(("sync",))
        elif self.configuration.limit and not self.configuration.pools:
            self.steps.append(("set_limit", self.configuration.limit + (self.below(300) - 100) * MIB))


def draw(seed, configuration, count):
    """A program of at least `count` steps."""
    program = Program(seed, configuration)
    while len(program.steps) < count:
        program.step()
    if program.entered is not None:
        program.change_pool()
    return program
