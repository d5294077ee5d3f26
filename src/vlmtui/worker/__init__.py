"""The other process: hosts one model in vLLM and speaks to clients over a Unix socket."""
