"""What a token costs on its way through worker, socket and client."""
