"""Measurements. Each prints ratios of two things measured in the same run, since machines are noisy."""
