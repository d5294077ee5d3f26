"""The backends `served` and `pinned`: the worker starts a private `vllm serve` and talks HTTP to it."""
