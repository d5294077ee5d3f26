"""The worker process: hosts one model and serves clients over a Unix socket."""
