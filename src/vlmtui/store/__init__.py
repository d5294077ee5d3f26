"""Conversations on disk: one SQLite database next to the stored media. Calls block and must come from one thread."""
