"""Many runs: grids, their cost, a schedule that may be killed at any moment, and the paper's tables."""
