"""The backends `served` and `pinned`: the worker starts a private `vllm serve` and talks HTTP to it; `pinned` starts
that of another vLLM version, which has an environment of its own."""
