"""Damaged files by the thousand: every format and every file of a run's folder, each damaged in thousands of ways and read.

`make fuzz` runs it all; `python -m fuzz --target png --cases 500` (from tests/) one target. Every case has a number, and the
same seed and number damage a file in the same way: `--target png --only 17` does that one again, and shows its traceback.
"""
