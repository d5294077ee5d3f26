"""The tour: the app, with what to do next on every screen."""
