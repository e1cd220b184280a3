#!/usr/bin/env python3
"""python3 -m unittest discover scripts/lib: what scripts/peers makes of results."""

import contextlib
import io
import unittest

from peers_report import faster_torch, ratios, report, scopes_counted, spread_text, table_of


def pair(peer, ns, owned=140000):
    return {"peer": peer, "bench": "pair", "bytes": 512, "owned": owned, "ns": ns}


def replay(peer, ns, reserved, moved=-1):
    return {"peer": peer, "bench": "replay", "trace": "gpt2", "steps": 10, "requested_peak": 1000, "reserved_peak": reserved,
            "moved_cold": moved, "moved_warm": moved / 2 if moved > 0 else moved, "owned": 5, "cold_ms": 1.0, "ns": ns}


def printed(results, peers):
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        fine = report(results, peers)
    return fine, output.getvalue()


class Ratios(unittest.TestCase):
    def test_each_row_takes_the_policy_of_pytorch_that_is_faster_in_it(self):
        results = [pair("memtrack", 100), pair("torch", 400), pair("torch_expandable", 200), replay("memtrack", 30, 1100),
                   replay("torch", 100, 2200), replay("torch_expandable", 120, 1100)]
        lines = ratios(table_of(results), ["memtrack"])
        self.assertIn(["pair, 512 B: ns", "torch_exp 200", "0.500"], lines)
        self.assertIn(["gpt2: warm, ns a step", "torch 100", "0.300"], lines)
        self.assertIn(["gpt2: reserved / requested peak", "torch_exp 1.100", "1.000"], lines)

    def test_medians_of_rounds_are_compared(self):
        table = table_of([pair("memtrack", ns) for ns in (90, 100, 5000)] + [pair("torch", ns) for ns in (10, 200, 210)])
        self.assertEqual(faster_torch(table["pair, 512 B: ns"]), ("torch", 200))
        self.assertEqual(ratios(table, ["memtrack", "async"]), [["pair, 512 B: ns", "torch 200", "0.500", "-"]])

    def test_ratios_of_the_fastest_rounds_are_of_each_peer_s_own(self):
        table = table_of([pair("memtrack", 150), pair("memtrack", 50), pair("torch", 300), pair("torch", 200)])
        self.assertEqual(ratios(table, ["memtrack"], min), [["pair, 512 B: ns", "torch 200", "0.250"]])
        text = printed([pair("memtrack", 150), pair("memtrack", 50), pair("torch", 300), pair("torch", 200)], ["memtrack", "torch"])[1]
        self.assertIn("fastest round", text)

    def test_there_are_none_without_pytorch(self):
        self.assertEqual(ratios(table_of([pair("memtrack", 100)]), ["memtrack"]), [])
        self.assertNotIn("ratios", printed([pair("memtrack", 100)], ["memtrack"])[1])


class Spread(unittest.TestCase):
    def test_is_told_in_percent_of_the_median(self):
        self.assertEqual(spread_text([95, 100, 120]), "-5 +20")
        self.assertEqual(spread_text([100, 100]), "0")
        self.assertEqual(spread_text([0, 0]), "0")
        self.assertEqual(spread_text(None), "-")


class Report(unittest.TestCase):
    def test_shows_moved_pages_of_those_that_move_some(self):
        text = printed([replay("memtrack_compact", 30, 1010, 40), replay("torch", 100, 2200)], ["memtrack_compact", "torch"])[1]
        self.assertRegex(text, r"gpt2: pages moved, cold +\| 40\.0 +\| - ")
        self.assertRegex(text, r"gpt2: pages moved, warm +\| 20\.0 +\| - ")

    def test_says_on_how_many_traces_reserved_peaks_are_pytorchs(self):
        results = [replay("memtrack", 30, 1100), replay("torch", 100, 1100)]
        self.assertIn("equal to the byte on 1 of 1 traces", printed(results, ["memtrack", "torch"])[1])
        results.append(replay("torch", 100, 1200))
        self.assertIn("equal to the byte on 0 of 1 traces", printed(results, ["memtrack", "torch"])[1])

    def test_fails_when_no_scope_counted_what_memtrack_allocated(self):
        self.assertTrue(printed([pair("memtrack", 100)], ["memtrack"])[0])
        fine, text = printed([pair("memtrack", 100), pair("buffers", 90, owned=0)], ["memtrack", "buffers"])
        self.assertFalse(fine)
        self.assertIn("FAILED   no scope counted the allocations of buffers, pair", text)
        self.assertTrue(scopes_counted([pair("buffers_no_scope", 90, owned=0), pair("torch", 90, owned=0)]))


if __name__ == "__main__":
    unittest.main()
