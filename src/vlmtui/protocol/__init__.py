"""The protocol between app and worker: messages, their encoding, a worker's files, and answers spooled to disk."""
