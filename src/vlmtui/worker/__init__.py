"""The other process: hosts one model and speaks to clients over a Unix socket."""
