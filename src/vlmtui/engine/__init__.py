"""The interface of engines for the app and the commands, and its implementation by workers of this machine."""
