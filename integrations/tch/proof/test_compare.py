"""The comparison notices what it is there to notice: each figure in turn is made wrong, and must be told."""

import unittest

from compare import STATISTICS, Comparison, Difference


class Program:
    """A program on an allocator that keeps PyTorch's counters, with memtrack's part played by hand."""

    def __init__(self, **options):
        self.counters = dict.fromkeys(STATISTICS.values(), 0)
        self.comparison = Comparison(lambda: dict(self.counters), **options)
        self.comparison.begin("test")
        self.wrong = {}

    def allocate(self, byte_count):
        now = self.counters["allocated_bytes.all.current"] + byte_count
        self.counters["allocated_bytes.all.current"] = now
        self.counters["allocated_bytes.all.peak"] = max(now, self.counters["allocated_bytes.all.peak"])
        self.counters["reserved_bytes.all.current"] = max(now, self.counters["reserved_bytes.all.current"])
        self.counters["reserved_bytes.all.peak"] = self.counters["reserved_bytes.all.current"]

    def reset(self):
        for name in ("allocated_bytes.all", "reserved_bytes.all"):
            self.counters[f"{name}.peak"] = self.counters[f"{name}.current"]

    def read(self):
        event = {figure: self.counters[name] for figure, name in STATISTICS.items()}
        self.comparison.tell({"event": "reading", **event, **self.wrong})

    def boundary(self):
        self.read()
        self.reset()
        self.read()

    def opens(self, scope):
        self.comparison.tell({"event": "open", "scope": scope})
        self.boundary()

    def closes(self, scope, by="record", **figures):
        self.boundary()
        figures = {"before_bytes": 0, "after_bytes": 0, "retry_count": 0, "oom_count": 0, **figures}
        self.comparison.tell({"event": "record", "by": by, "scope": scope, "figures": figures})


def nested(**wrong):
    """An outer scope whose highest moment is in an inner one."""
    program = Program()
    program.opens("outer")
    program.allocate(100)
    program.opens("inner")
    program.allocate(900)
    program.allocate(-900)
    program.closes("inner", before_bytes=100, after_bytes=100, peak_bytes=1000)
    program.allocate(-100)
    figures = {"before_bytes": 0, "after_bytes": 0, "peak_bytes": 1000, "reserved_peak_bytes": 1000, "delta_bytes": 0}
    program.closes("outer", **{**figures, **wrong})
    return program


class Readings(unittest.TestCase):
    def test_equal_readings_are_counted(self):
        program = Program()
        program.allocate(512)
        program.read()
        program.read()
        self.assertEqual(program.comparison.total(), 12)
        heading, row = program.comparison.table()
        self.assertEqual(row.split()[:4], ["test", "reading", "2", "current_bytes,"])

    def test_each_figure_of_a_reading_is_compared(self):
        for figure in STATISTICS:
            program = Program()
            program.allocate(512)
            program.wrong = {figure: 513}
            with self.assertRaisesRegex(Difference, f"reading.{figure}: memtrack says 513"):
                program.read()

    def test_an_absent_figure_is_a_difference_unless_the_backend_does_not_count_it(self):
        for wrong in ({"peak_bytes": None}, {"retry_count": None}):
            program = Program()
            program.wrong = wrong
            with self.assertRaises(Difference):
                program.read()
        program = Program(counts_are_kept=False)
        program.wrong = {"retry_count": None, "oom_count": None}
        program.read()
        program.counters["num_ooms"] = 1
        with self.assertRaisesRegex(Difference, "oom_count: memtrack says 0, PyTorch 1"):
            program.read()


class Records(unittest.TestCase):
    def test_a_peak_inside_an_inner_scope_is_the_outer_ones_too(self):
        outer = nested().comparison.records("outer")[0]
        self.assertEqual((outer["peak_bytes"], outer["windows"]), (1000, 3))
        self.assertEqual(outer["last_mark_bytes"], 100, "PyTorch's own mark has forgotten it")

    def test_each_figure_of_a_record_is_compared(self):
        for figure, value in {"before_bytes": 1, "after_bytes": 1, "peak_bytes": 999, "reserved_peak_bytes": 1,
                              "delta_bytes": 1, "retry_count": 1, "oom_count": 1}.items():
            with self.assertRaisesRegex(Difference, f"record.{figure}"):
                nested(**{figure: value})

    def test_a_record_without_a_peak_or_with_a_lower_bound_is_no_proof(self):
        program = Program()
        program.opens("scope")
        with self.assertRaisesRegex(Difference, "told without"):
            program.closes("scope")
        for doubt in ({"peak_kind": "at_boundaries"}, {"failure": "not read"}):
            program = Program()
            program.opens("scope")
            program.boundary()
            figures = {"before_bytes": 0, "after_bytes": 0, "peak_bytes": 0, "retry_count": 0, "oom_count": 0}
            with self.assertRaisesRegex(Difference, "is not exact"):
                program.comparison.tell({"event": "record", "by": "record", "scope": "scope", "figures": figures, **doubt})

    def test_records_close_in_the_order_of_nesting_and_all_of_them(self):
        program = Program()
        program.opens("outer")
        program.opens("inner")
        with self.assertRaisesRegex(Difference, "inner is innermost"):
            program.closes("outer", peak_bytes=0)
        program = Program()
        program.opens("outer")
        with self.assertRaisesRegex(Difference, "left open"):
            program.comparison.begin("next")

    def test_a_peak_is_compared_with_the_same_work_measured_without_memtrack(self):
        def measured(alone_bytes):
            program = Program()
            program.comparison.tell({"event": "alone begins", "scope": "work"})
            program.allocate(alone_bytes)
            program.allocate(-alone_bytes)
            program.comparison.tell({"event": "alone ends", "scope": "work"})
            program.reset()
            program.opens("work")
            program.allocate(700)
            program.allocate(-700)
            program.closes("work", peak_bytes=700)
            return program

        self.assertIn(("test", "alone"), measured(700).comparison.compared)
        with self.assertRaisesRegex(Difference, "alone.peak_bytes: memtrack says 700, PyTorch 800"):
            measured(800)


class Summary(unittest.TestCase):
    ROW = {"phase": "forward", "entered_count": 2, "before_bytes": 0, "after_bytes": 200, "net_bytes": 200,
           "peak_bytes": 700, "rise_max_bytes": 600, "reserved_peak_bytes": 700}

    def summarized(self, row, **figures):
        program = Program()
        program.opens("epoch")
        for number in range(2):
            program.opens("forward")
            program.allocate(600)
            program.allocate(-500)
            before = number * 100
            program.closes("forward", by="span", before_bytes=before, after_bytes=before + 100, peak_bytes=before + 600)
        program.boundary()
        figures = {"before_bytes": 0, "after_bytes": 200, "peak_bytes": 700, **figures}
        program.comparison.tell({"event": "summary", "scope": "epoch", "figures": figures, "phases": [row], "text": ""})

    def test_a_right_summary_passes(self):
        self.summarized(self.ROW)

    def test_each_figure_of_a_row_and_of_the_epoch_is_compared(self):
        for figure in set(self.ROW) - {"phase"}:
            with self.assertRaisesRegex(Difference, f"phase row.{figure}"):
                self.summarized({**self.ROW, figure: self.ROW[figure] + 1})
        with self.assertRaisesRegex(Difference, "summary.peak_bytes"):
            self.summarized(self.ROW, peak_bytes=701)
        with self.assertRaisesRegex(Difference, "that no record had"):
            self.summarized({**self.ROW, "phase": "backward"})


class Perturbed(unittest.TestCase):
    def test_a_byte_more_is_noticed_and_a_name_that_never_comes_too(self):
        program = Program(perturb="reading.peak_bytes")
        with self.assertRaisesRegex(Difference, "reading.peak_bytes: memtrack says 1, PyTorch 0"):
            program.read()
        self.assertTrue(program.comparison.perturbed)
        self.assertFalse(Program(perturb="reading.nothing").comparison.perturbed)


if __name__ == "__main__":
    unittest.main()
