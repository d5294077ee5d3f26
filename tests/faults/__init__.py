"""Fault injection below SQLite: the real store over a disk that fails."""
