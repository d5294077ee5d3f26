"""A `vllm serve` of this machine, started by the worker and used by it alone."""
