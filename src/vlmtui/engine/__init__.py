"""The engine interface used by the app and the commands, and its implementation with local workers."""
