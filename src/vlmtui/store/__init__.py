"""Conversations on disk: one SQLite database beside the stored media. Blocking calls, meant for one thread."""
