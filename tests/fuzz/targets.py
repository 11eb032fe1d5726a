"""The table of all that is fuzzed."""

from fuzz import data_targets, run_targets
from fuzz.target import Target

TARGETS: dict[str, Target] = {**data_targets.TARGETS, **run_targets.TARGETS}
