"""Damaged files by the thousand: every format, and every file of a run's folder, damaged in many ways and read.

`make fuzz` runs it all; `python -m fuzz --target png --cases 500` (from tests/) one target. A case has a number: with
the same seed it damages a file in the same way. `--target png --only 17` repeats that one, and shows its traceback.
"""
