"""What the two processes say to each other, and how it is written on the wire."""
