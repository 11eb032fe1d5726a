"""A part of the fuzzer, and that it notices what it is there for. `make fuzz` runs all of it."""

from pathlib import Path
from random import Random

import pytest
from fuzz import damage, fakes
from fuzz.__main__ import BAD, summary
from fuzz.runner import Case, Limits, at_a_fixed_time, run
from fuzz.targets import TARGETS

EACH = 1  # cases of a target; `make fuzz` does hundreds


def test_damaged_files_are_read_or_refused_in_one_line() -> None:
    cases = [Case(name, number, 1) for name in TARGETS for number in range(EACH)]
    outcomes = run(cases, "fuzz.targets", processes=1)
    bad = {case: outcome for case, outcome in outcomes.items() if outcome.kind in BAD}
    assert not bad, "\n".join(summary(bad))
    assert sum(outcome.kind == "refused" for outcome in outcomes.values()) > len(cases) / 3, (
        "the damage is too small to tell"
    )


def test_what_it_notices() -> None:
    cases = [Case(name, 0, 0) for name in fakes.TARGETS]
    outcomes = run(cases, "fuzz.fakes", processes=1, limits=Limits(2.0, 600))
    assert [outcomes[case].kind for case in cases] == [case.target.split(",")[0] for case in cases]
    assert "KeyError" in outcomes[cases[2]].detail
    assert "ended with -11" in outcomes[cases[3]].detail
    assert sum(line.startswith("    ") for line in summary({case: outcomes[case] for case in cases})) == 0
    twice = {Case("traceback", number, 0): outcomes[cases[2]] for number in range(2)}
    assert any("--target 'traceback' --only 0: traceback: KeyError: 'step'" in line for line in summary(twice))


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_is_sound_and_its_damage_is_the_same_every_time(name: str, tmp_path: Path) -> None:
    files = []
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        with at_a_fixed_time():
            files.append(TARGETS[name].make(tmp_path / place))
    data = files[0].read_bytes()
    assert data == files[1].read_bytes()
    TARGETS[name].read(files[0])
    for change in (damage.raw, *TARGETS[name].inside):
        damaged = [change(data, Random(7)) for _ in range(2)]
        assert damaged[0] == damaged[1]
        assert any(change(data, Random(number)) != data for number in range(5))
