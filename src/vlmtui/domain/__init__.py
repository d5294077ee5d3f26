"""Plain frozen data that every other package speaks. No I/O here."""
