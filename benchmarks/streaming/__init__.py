"""What an answer that streams costs: the app against a bare Textual chat, in pseudo-terminals. See `__main__`."""
