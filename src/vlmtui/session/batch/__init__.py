"""Batches: many items through one model, each answered once."""
