"""A commented family record to start from."""

from __future__ import annotations

from vlmtui.registry.schema import Family

_TEXT = """# A family of vision-language models. `vlmtui models show {name}` prints it resolved;
# `vlmtui prompt {name} --images 2 "What differs?"` prints what would be sent. Unknown fields are refused.
family = "{name}"
title = "{name}"
# Repository ids or local folders; the first is the default.
models = ["owner/{name}"]
# As in the models' config.json. They also tell which other repositories belong to the family.
architectures = ["Qwen2VLForConditionalGeneration"]
# model_types = ["qwen2_vl"]
# patterns = ["{name}-*"]
# parameters_b = 7.0
# context = 32768

# What it takes. `placeholder` stands for one image in a raw prompt; {{i}} counts the images from 1.
[takes.image]
placeholder = "<|vision_start|><|image_pad|><|vision_end|>"
max_items = 8
# place = "before"      # or "after" the turn's text, before the whole "turn", at the "front" of the prompt
# separator = "\\n"      # between two placeholders
# gap = "\\n"            # between placeholders and text

# [takes.video]
# placeholder = "<|vision_start|><|video_pad|><|vision_end|>"
# frames = 16
# metadata = true       # the engine demands the frames' times

# How a raw prompt is written. Or, where the model's own chat template is to write it:
# [raw]
# by = "tokenizer"      # or "processor"
# parts = true          # content as a list of parts instead of one text
[raw]
system = "<|im_start|>system\\n{{content}}<|im_end|>\\n"
user = "<|im_start|>user\\n{{content}}<|im_end|>\\n"
assistant = "<|im_start|>assistant\\n{{content}}<|im_end|>\\n"
generation_prompt = "<|im_start|>assistant\\n"

# vLLM's engine arguments, by name.
[engine_args]
max_model_len = 8192
max_num_seqs = 4

[[routes]]
architecture = "Qwen2VLForConditionalGeneration"

# More: stop_tokens, stop_token_ids, trust_remote_code, [sampling], [lora], chat = "registry" for a model without a chat
# template of its own, question = "ignored". The records of the package show all of them.
"""


def skeleton(name: str, known: Family | None = None) -> str:
    """The text of a new record called `name`; of one that replaces a known family, where there is one of that name."""
    if known is None:
        return _TEXT.format(name=name)
    head = f"""# Replaces what the package knows of {known.title}: all of it is taken over, but for what stands here.
family = "{name}"
extends = "{name}"
title = "{known.title}"
models = {list(known.models)!r}

# For instance, for a smaller GPU:
# [engine_args]
# max_model_len = 4096
"""
    return head.replace("'", '"')
