"""Batches: one model answers each of many questions (items) once."""
