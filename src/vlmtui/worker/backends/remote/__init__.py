"""A server that speaks vLLM's HTTP interface, as a backend."""
