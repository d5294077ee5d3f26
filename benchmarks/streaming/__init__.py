"""The cost of a streaming answer: the app against a bare Textual chat, in pseudo-terminals. See `__main__`."""
