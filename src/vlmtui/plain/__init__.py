"""Plain mode: a chat in lines, for any terminal and for screen readers. It only appends."""
