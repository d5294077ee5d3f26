"""The protocol between app and worker: messages, encoding, endpoints, and the spool of unfetched answers."""
