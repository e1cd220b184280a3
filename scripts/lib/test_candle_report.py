#!/usr/bin/env python3
"""python3 -m unittest discover scripts/lib: what scripts/candle-check makes of its runs."""

import contextlib
import io
import json
import pathlib
import tempfile
import unittest

import candle_report

ERRORS = """memtrack: cuda:0, cached: 10 allocations, 9 frees, 0 failures
  peak 1.50 GiB, at the end 0 B in 0 blocks, 6.37 TiB allocated in all (bytes as requested)
  cache: 14 allocations of the driver, 8 given back; reserved 2.50 GiB at most, 66.00 MiB at the end; 2 retries, 1 out of memory
"""


def run(step, losses=(5.5, 4.25), **more):
    return {"step_ms": {"median": step}, "losses": list(losses), "device_total_bytes": 4 << 30, **more}


def printed(runs):
    """What `report` says of runs by name and round, and what it returns."""
    with tempfile.TemporaryDirectory() as folder:
        for (name, number), (value, errors) in runs.items():
            path = pathlib.Path(folder) / f"{name}.{number}.json"
            path.write_text(json.dumps(value))
            path.with_suffix(".err").write_text(errors)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            fine = candle_report.report(candle_report.read(folder))
    return fine, output.getvalue()


class Report(unittest.TestCase):
    def test_a_ratio_is_of_one_round_and_the_median_of_the_rounds_is_shown(self):
        fine, text = printed({
            ("plain", 0): (run(10.0), ""), ("cached", 0): (run(9.0), ERRORS),
            ("plain", 1): (run(20.0), ""), ("cached", 1): (run(16.0), ERRORS),
            ("plain", 2): (run(10.0), ""), ("cached", 2): (run(5.0), ERRORS),
        })
        self.assertTrue(fine)
        self.assertIn("0.8000 (0.5000 - 0.9000)", text)
        self.assertIn("1536.0", text)
        self.assertIn("2560.0", text)

    def test_a_digit_that_differs_is_told_with_its_step(self):
        fine, text = printed({("plain", 0): (run(1.0), ""), ("cached", 0): (run(1.0, (5.5, 4.250001)), ERRORS)})
        self.assertFalse(fine)
        self.assertIn("first in step 1: 4.25 and 4.250001", text)

    def test_the_losses_of_pytorch_are_not_compared(self):
        fine, _ = printed({("plain", 0): (run(1.0), ""), ("torch", 0): (run(1.0, (5.0, 4.0)), "")})
        self.assertTrue(fine)


class Peaks(unittest.TestCase):
    def test_the_pools_peak_without_memtrack_is_set_beside_what_memtrack_told(self):
        def agree(told):
            rounds = {0: {"plain": {"pool_used_peak_bytes": 70}, "measured": {"memtrack_peak_bytes": told}}}
            with contextlib.redirect_stdout(io.StringIO()):
                return candle_report.peaks_agree(rounds)

        self.assertTrue(agree(70))
        self.assertFalse(agree(71))
        self.assertFalse(agree(None))


class Limits(unittest.TestCase):
    def test_a_limit_lies_between_what_was_allocated_and_what_was_reserved(self):
        roomy = run(1.0) | {"errors": ERRORS}
        self.assertEqual(candle_report.fraction(roomy, 0.5), 2.0 / 4)
        self.assertEqual(candle_report.part(roomy, 0.5), 0.75 / 4)

    def test_retries_are_those_that_memtrack_told(self):
        self.assertEqual(candle_report.said(ERRORS)[2:], (2, 1))
        self.assertEqual(candle_report.said("memtrack: nothing"), (None, None, None, None))


if __name__ == "__main__":
    unittest.main()
