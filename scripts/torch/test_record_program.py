#!/usr/bin/env python3
"""python3 -m unittest discover scripts/torch: the recorder against programs that PyTorch answered; no GPU, no PyTorch."""

import gzip
import json
import unittest
from pathlib import Path
from types import SimpleNamespace

import record_program
from fake_torch import Player, fake_torch
from programs import CONFIGURATIONS, STREAMS, draw

PROGRAMS = Path(__file__).resolve().parent.parent.parent / "tests/fixtures/torch-2.11/programs"
NAMES = ("record-stream-idle", "random-big-default-free", "random-small-expand-free", "random-even-round4-limit",
         "max-split-oom", "streams-separate")


def recorded(name):
    content = json.loads(gzip.decompress((PROGRAMS / f"{name}.json.gz").read_bytes()))
    # Only what the recorder has steps for, in the file's own words.
    content["ops"] = content["ops"][:next((place for place, step in enumerate(content["ops"])
                                           if step["op"][0] in ("sleep", "set_fraction")), None)]
    return content


def record_again(content, pools=False):
    """What the recorder writes when PyTorch answers as it did."""
    steps = [tuple(step["op"]) for step in content["ops"]]
    program = SimpleNamespace(
        configuration=SimpleNamespace(name="", text=content["config"], limit=content.get("limit_bytes"), pools=pools),
        steps=steps,
        shared={step[1] for step in steps if step[0] == "record_stream"},
    )
    player = Player(content)
    written = record_program.record(fake_torch(player), program, content["name"])
    player.pass_over_refused()
    player.over = True
    return written, player


class Recorder(unittest.TestCase):
    def test_what_pytorch_answered_is_written_as_it_was(self):
        for name in NAMES:
            with self.subTest(name):
                content = recorded(name)
                written, player = record_again(content)
                self.assertGreater(len(content["ops"]), 5)
                self.assertEqual(player.place, len(content["ops"]))
                for key in ("name", "config", "total_memory", "initial_stats", "trace", "final_segments"):
                    self.assertEqual(written[key], content[key], key)
                self.assertEqual(written.get("limit_bytes"), content.get("limit_bytes"))
                self.assertEqual(written["final_stats"], player.statistics)
                for place, (ours, theirs) in enumerate(zip(written["ops"], content["ops"], strict=True)):
                    self.assertEqual(ours, theirs, f"step {place}")

    def test_the_form_with_pools_says_the_same(self):
        content = recorded("random-big-default-free")
        written, _ = record_again(content, pools=True)
        written = json.loads(json.dumps(written))
        keys, (first, *steps) = written["keys"], written["ops"]
        start = dict.fromkeys(keys, 0) | {keys[number]: value for number, value in first["d"]}
        self.assertEqual(start, content["initial_stats"])
        for ours, theirs in zip(steps, content["ops"], strict=True):
            self.assertEqual({keys[number]: value for number, value in ours["d"]}, theirs["changed"])
            if theirs["op"][0] == "alloc":
                self.assertEqual(["alloc", ours["id"], ours["size"], ours["stream"]], theirs["op"])
                self.assertEqual(ours["ptr"], theirs.get("ptr"))
        self.assertEqual(written["streams"], list(range(STREAMS)))


class Programs(unittest.TestCase):
    def test_a_seed_gives_the_same_steps_and_another_gives_others(self):
        for configuration in CONFIGURATIONS:
            steps = draw(1, configuration, 300).steps
            self.assertEqual(steps, draw(1, configuration, 300).steps)
            self.assertNotEqual(steps, draw(2, configuration, 300).steps)

    def test_blocks_and_pools_are_named_while_they_are_there(self):
        for configuration in CONFIGURATIONS:
            live, pools, entered = set(), set(), None
            program = draw(3, configuration, 2000)
            for place, (name, *arguments) in enumerate(program.steps):
                subject = arguments[0] if arguments else None
                if name == "alloc":
                    self.assertNotIn(subject, live)
                    live.add(subject)
                elif name == "free":
                    live.remove(subject)
                    if subject in program.used_elsewhere:
                        self.assertEqual(program.steps[place + 1], ("sync",))
                elif name == "record_stream":
                    self.assertIn(subject, live & program.shared)
                elif name == "pool_new":
                    pools.add(subject)
                elif name == "pool_begin":
                    self.assertIn(subject, pools)
                    self.assertIsNone(entered)
                    entered = subject
                elif name == "pool_end":
                    self.assertEqual(entered, subject)
                    entered = None
                elif name == "pool_delete":
                    self.assertIsNone(entered)
                    pools.remove(subject)
            self.assertIsNone(entered)
            self.assertEqual(configuration.pools, any(step[0] == "pool_begin" for step in program.steps))


if __name__ == "__main__":
    unittest.main()
