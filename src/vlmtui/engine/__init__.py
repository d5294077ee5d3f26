"""The engine as the app and the command line see it: an interface, the client of a worker, the life of its process."""
