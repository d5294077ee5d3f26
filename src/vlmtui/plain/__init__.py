"""Plain mode: a chat in lines that only appends text, for screen readers and simple terminals."""
