"""The tables of mutants are up to date: every text is in its file, once, and every test that is named is there."""

import ast

import pytest
from mutants.run import ROOT, Mutant, listed

MUTANTS = listed()
PARTS = ("methods", "augment", "nets", "train", "data", "experiment", "judge")


def test_there_are_enough_of_every_part() -> None:
    assert len(MUTANTS) >= 60
    for part in PARTS:
        assert sum(mutant.file.startswith(part) for mutant in MUTANTS) >= 5, part
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS)
    assert len({mutant.about for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.about)
def test_a_mutant_is_up_to_date(mutant: Mutant) -> None:
    whole = (ROOT / mutant.path).read_text()
    assert whole.count(mutant.old) == 1
    assert mutant.new != mutant.old
    ast.parse(whole.replace(mutant.old, mutant.new))
    assert mutant.tests
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text(), test
