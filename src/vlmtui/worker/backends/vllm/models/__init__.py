"""Model classes of vlmtui for architectures that vLLM has dropped, written against its public model interface.

A record names one (`[[routes]] model_class = "module:Class"`); the engine argument `model_class_overrides` has vLLM use
it in each of its processes. What a checkpoint's configuration lacks for its class is in `configs`.
"""
