"""Compares what memtrack says with what PyTorch says, as it is told of one by one.

Nothing here imports torch: PyTorch's counters come from a function that is handed over, so that tests can hand over another.
"""

# Of a reading, and under which name PyTorch has it.
STATISTICS = {
    "current_bytes": "allocated_bytes.all.current",
    "peak_bytes": "allocated_bytes.all.peak",
    "reserved_bytes": "reserved_bytes.all.current",
    "reserved_peak_bytes": "reserved_bytes.all.peak",
    "retry_count": "num_alloc_retries",
    "oom_count": "num_ooms",
}
COUNTS = ("retry_count", "oom_count")


class Difference(Exception):
    """The first thing that does not agree."""


class Scope:
    """One that is open: which of the readings is its first, and what was read at ends of windows within."""

    def __init__(self, name, first):
        self.name = name
        # A boundary has two readings: the end of a window, and after the reset of the peaks the beginning of the next.
        self.first = first + 1


class Comparison:
    """Follows the events of one scenario or several.

    `statistics` gives PyTorch's counters at this moment, `counts_are_kept` says whether the backend counts retries and out of memory
    errors. `perturb` names one of Rust's figures, as `record.peak_bytes`, to which a byte is added once: to see it noticed.
    """

    def __init__(self, statistics, counts_are_kept=True, perturb=None):
        self._statistics = statistics
        self._counts_are_kept = counts_are_kept
        self._perturb = perturb
        self.compared = {}
        self.scenario = ""
        self._readings = []
        self._open = []
        self._alone = {}
        self._alone_before = None
        self._records = {}

    @property
    def perturbed(self):
        """Whether what was to be perturbed has come."""
        return self._perturb is None

    def begin(self, scenario):
        """From here on, what is compared counts for this scenario."""
        if self._open:
            raise Difference(f"scopes are left open: {[scope.name for scope in self._open]}")
        self.scenario = scenario
        self._readings, self._alone, self._records = [], {}, {}

    def records(self, scope):
        """What was told of the scopes of this name in this scenario."""
        return self._records.get(scope, [])

    def tell(self, event):
        """An event of Rust's; those that need more of PyTorch than its counters are the caller's."""
        handle = {
            "reading": self._reading,
            "open": self._opens,
            "record": self._record,
            "summary": self._summary,
            "alone begins": self._alone_begins,
            "alone ends": self._alone_ends,
        }.get(event["event"])
        if handle is None:
            return False
        handle(event)
        return True

    def agree(self, what, figure, memtrack, torch):
        """One comparison. `what` names its row in the table."""
        name = f"{what}.{figure}"
        if self._perturb == name and memtrack is not None:
            self._perturb = None
            memtrack += 1
        if memtrack is None and figure in COUNTS and not self._counts_are_kept:
            # Not counted: nothing to be wrong with, unless PyTorch does count.
            memtrack = 0
        if memtrack != torch or memtrack is None:
            raise Difference(f"{self.scenario}: {name}: memtrack says {memtrack}, PyTorch {torch}")
        row = self.compared.setdefault((self.scenario, what), {})
        row[figure] = row.get(figure, 0) + 1

    def _reading(self, event):
        torch = self._statistics()
        for figure, name in STATISTICS.items():
            self.agree("reading", figure, event[figure], torch[name])
        self._readings.append({figure: torch[name] for figure, name in STATISTICS.items()})

    def _opens(self, event):
        self._open.append(Scope(event["scope"], len(self._readings)))

    def _expected(self, scope):
        """What PyTorch's own counters, as read here, say of a scope that has just closed."""
        windows = self._readings[scope.first : -1]
        if len(windows) < 2:
            raise Difference(f"{self.scenario}: {scope.name} closed without a reading at both ends")
        begun, ended = windows[0], windows[-1]
        # Each second reading is the end of a window, with the mark of all that happened in it.
        ends = windows[1::2]
        return {
            "before_bytes": begun["current_bytes"],
            "after_bytes": ended["current_bytes"],
            "delta_bytes": ended["current_bytes"] - begun["current_bytes"],
            "peak_bytes": max([begun["current_bytes"]] + [end["peak_bytes"] for end in ends]),
            "peak_delta_bytes": max([0] + [end["peak_bytes"] - begun["current_bytes"] for end in ends]),
            "reserved_before_bytes": begun["reserved_bytes"],
            "reserved_after_bytes": ended["reserved_bytes"],
            "reserved_peak_bytes": max([begun["reserved_bytes"]] + [end["reserved_peak_bytes"] for end in ends]),
            "retry_count": ended["retry_count"] - begun["retry_count"],
            "oom_count": ended["oom_count"] - begun["oom_count"],
            "windows": len(ends),
            "last_mark_bytes": ended["peak_bytes"],
        }

    def _close(self, event):
        scope = self._open.pop() if self._open else None
        if scope is None or scope.name != event["scope"]:
            raise Difference(f"{self.scenario}: {event['scope']} closed, but {scope and scope.name} is innermost")
        if event.get("failure") or event.get("peak_kind", "exact") != "exact":
            raise Difference(f"{self.scenario}: {scope.name} is not exact: {event.get('failure') or event['peak_kind']}")
        expected = self._expected(scope)
        if not self._counts_are_kept:
            # The spans leave out what is not known.
            for figure in COUNTS:
                event["figures"].setdefault(figure, None)
        return expected

    def _record(self, event):
        expected = self._close(event)
        what = "record" if event["by"] == "record" else "span"
        missing = {"before_bytes", "after_bytes", "peak_bytes", *COUNTS} - set(event["figures"])
        if missing:
            raise Difference(f"{self.scenario}: {event['scope']} is told without {sorted(missing)}")
        for figure, value in event["figures"].items():
            self.agree(what, figure, value, expected[figure])
        # A phase inside another, as the data of an evaluation, is other work under the same name.
        around = self._open[-1].name if self._open else "step"
        if event["scope"] in self._alone and around == "step":
            self._as_alone(event)
        self._records.setdefault(event["scope"], []).append(expected)

    def _as_alone(self, event):
        """The same work, measured by PyTorch's peaks alone: memtrack's resets must not have cost anything."""
        before, peak, after = self._alone[event["scope"]]
        figures = event["figures"]
        self.agree("alone", "before_bytes", figures["before_bytes"], before)
        self.agree("alone", "peak_bytes", figures["peak_bytes"], peak)
        self.agree("alone", "after_bytes", figures["after_bytes"], after)

    def _summary(self, event):
        records = dict(self._records)
        expected = self._close(event)
        for figure, value in event["figures"].items():
            self.agree("summary", figure, value, expected[figure])
        phases = {"data": "load_batch", "optimizer": "optimizer_step"}
        for row in event["phases"]:
            of_phase = records.get(phases.get(row["phase"], row["phase"]), [])
            if not of_phase:
                raise Difference(f"{self.scenario}: the summary has a phase {row['phase']} that no record had")
            wanted = {
                "entered_count": len(of_phase),
                "before_bytes": of_phase[0]["before_bytes"],
                "after_bytes": of_phase[-1]["after_bytes"],
                "net_bytes": sum(record["delta_bytes"] for record in of_phase),
                "peak_bytes": max(record["peak_bytes"] for record in of_phase),
                "rise_max_bytes": max(record["peak_delta_bytes"] for record in of_phase),
                "reserved_peak_bytes": max(record["reserved_peak_bytes"] for record in of_phase),
            }
            for figure, value in wanted.items():
                self.agree("phase row", figure, row[figure], value)

    def _alone_begins(self, event):
        self._alone_before = self._statistics()["allocated_bytes.all.current"]

    def _alone_ends(self, event):
        torch = self._statistics()
        self._alone[event["scope"]] = (
            self._alone_before,
            torch["allocated_bytes.all.peak"],
            torch["allocated_bytes.all.current"],
        )

    def table(self):
        """What was compared, and how often, as lines."""
        rows = [("scenario", "what", "times", "figures")]
        for (scenario, what), figures in self.compared.items():
            for count in sorted(set(figures.values())):
                names = ", ".join(figure for figure, times in figures.items() if times == count)
                rows.append((scenario, what, str(count), names))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        for scenario, what, count, names in rows:
            yield f"{scenario.ljust(widths[0])}  {what.ljust(widths[1])}  {count.rjust(widths[2])}  {names}"

    def total(self):
        """How many figures agreed."""
        return sum(count for figures in self.compared.values() for count in figures.values())
