"""A crash campaign for batches: `python -m tests.batches --kills 100`."""
