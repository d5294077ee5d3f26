"""Generates a commented family record for the user to fill in."""

from __future__ import annotations

from vlmtui.registry.schema import Family

_TEXT = """# A family of vision-language models. `vlmtui models show {name} --json` prints it resolved;
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

# Inputs. `placeholder` represents one image in a raw prompt; {{i}} is the image's number, from 1.
[takes.image]
placeholder = "<|vision_start|><|image_pad|><|vision_end|>"
max_items = 8
# place = "before"      # or "after" the turn's text, before the whole "turn", at the "front" of the prompt
# separator = "\\n"      # between two placeholders
# gap = "\\n"            # between placeholders and text

# [takes.video]
# placeholder = "<|vision_start|><|video_pad|><|vision_end|>"
# frames = 16
# metadata = true       # the engine needs the frames' times

# The raw prompt. To render it with the model's own chat template instead:
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

# More: stop_tokens, stop_token_ids, trust_remote_code, [sampling], [[loras]], chat = "registry" for a model without a
# chat template of its own, question = "ignored". See the package's records for examples.
"""


def skeleton(name: str, known: Family | None = None) -> str:
    """Return the text of a record called `name`. `known`: an existing family of that name, which the record then
    extends."""
    if known is None:
        return _TEXT.format(name=name)
    head = f"""# Overrides fields of the package's record of {known.title}; all other fields are inherited.
family = "{name}"
extends = "{name}"
title = "{known.title}"
models = {list(known.models)!r}

# For example, for a smaller GPU:
# [engine_args]
# max_model_len = 4096
"""
    return head.replace("'", '"')
