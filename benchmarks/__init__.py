"""Benchmarks. Each prints ratios of two things measured in the same run, since machines are noisy."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tools"))  # the scenes that tests and tools draw
