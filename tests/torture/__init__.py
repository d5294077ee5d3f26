"""Kills everything that can be killed, at moments drawn by a seed, and looks whether anything was lost."""
