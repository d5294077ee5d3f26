"""The backend `remote`: a model server with an OpenAI-compatible HTTP interface, best vLLM's."""
