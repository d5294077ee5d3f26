"""Frozen data types shared by all packages. No I/O."""
