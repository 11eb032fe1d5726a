"""Run it: `python -m fuzz`, from tests/. Exit code 1 where anything but an error of one line came of a damaged file."""

import argparse
import math
import sys
import time
from collections import Counter
from collections.abc import Iterable

from fuzz.runner import Case, Outcome, run
from fuzz.targets import TARGETS

BAD = ("traceback", "differs", "crash", "hang", "memory")
SHOWN = 3  # of each target's failures


def main() -> int:
    asked = argparse.ArgumentParser(prog="python -m fuzz")
    asked.add_argument("--cases", type=int, default=21_000, help="in all, or of the one target")
    asked.add_argument("--target", action="append", help="one of those that the summary lists; may come several times")
    asked.add_argument("--only", type=int, help="the number of one case of a target")
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--processes", type=int, default=2)
    given = asked.parse_args()
    names = given.target or list(TARGETS)
    whole = given.cases / sum(TARGETS[name].share for name in names)
    counts = {name: math.ceil(whole * TARGETS[name].share) for name in names}
    cases = [Case(name, number, given.seed) for name in names for number in range(counts[name])]
    if given.only is not None:
        cases = [Case(name, given.only, given.seed) for name in names]
    began = time.monotonic()
    outcomes = run(cases, "fuzz.targets", given.processes)
    print(*summary(outcomes), sep="\n")
    bad = sum(outcome.kind in BAD for outcome in outcomes.values())
    peak = max(outcome.peak for outcome in outcomes.values())
    slowest = max(outcomes, key=lambda case: outcomes[case].seconds)
    print(f"{len(outcomes):,} cases of {len(names)} targets in {time.monotonic() - began:.0f} s, seed {given.seed}")
    longest = f"{outcomes[slowest].seconds:.1f} s ({slowest.target}, case {slowest.number})"
    print(f"{bad} failed; at most {peak:,} MiB and {longest} for one")
    return 1 if bad else 0


def summary(outcomes: dict[Case, Outcome]) -> Iterable[str]:
    """A line for each target, and under it the first of its failures; of a single case, all that is known."""
    for name in dict.fromkeys(case.target for case in outcomes):
        mine = {case: outcome for case, outcome in outcomes.items() if case.target == name}
        counts = Counter(outcome.kind for outcome in mine.values())
        failed = "".join(f"  {counts[kind]} {kind}" for kind in BAD if counts[kind])
        peak = max(outcome.peak for outcome in mine.values())
        told = f"{len(mine):6} cases {counts['refused']:6} refused {counts['read']:6} read {peak:6} MiB"
        yield f"{name:28} {told}{failed}"
        if len(mine) == 1:
            yield next(iter(mine.values())).detail
            continue
        shown: dict[str, str] = {}
        for case, outcome in mine.items():
            if outcome.kind in BAD:
                last = (outcome.detail.strip().splitlines() or [""])[-1][:160]
                line = f"    --target {name!r} --only {case.number}: {outcome.kind}: {last}"
                shown.setdefault(f"{outcome.kind}: {last[:40]}", line)
        yield from list(shown.values())[:SHOWN]


if __name__ == "__main__":
    sys.exit(main())
