# ruff: noqa: E501  (a table)
"""Kinds of published chat templates, written after them, and exactly what lint finds in each."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.zoo.kit import write_tokenizer
from vlmtui.domain.model_reading import ReadRequest
from vlmtui.inspection.lint.check import check_reading
from vlmtui.inspection.lint.finding import LintKind as K
from vlmtui.inspection.lint.subject import canned_conversations, render_case
from vlmtui.registry.loader import Registry
from vlmtui.registry.unlisted import unlisted_family
from vlmtui.worker.model_reader import read_model

IMAGE, VIDEO = "<|vision_start|><|image_pad|><|vision_end|>", "<|vision_start|><|video_pad|><|vision_end|>"
CHATML = (
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|image_pad|>",
    "<|vision_end|>",
    "<|video_pad|>",
    "<think>",
    "</think>",
)
LLAMA = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|image|>")
GEMMA = ("<bos>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>")
GEMMA4 = ("<bos>", "<|turn>", "<turn|>", "<|image|>", "<|video|>", "<|channel>", "<channel|>")
MISTRAL = ("<s>", "</s>", "[INST]", "[/INST]", "[IMG]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]")
SMOL = ("<|im_start|>", "<end_of_utterance>", "<image>")
VICUNA = ("<s>", "</s>", "<image>")
PHI = ("<|user|>", "<|assistant|>", "<|system|>", "<|end|>", "<|endoftext|>")
QWEN_SYSTEM = "{%- if messages[0].role != 'system' %}{{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{%- endif %}"
HEAD, TAIL = "{{- '<|im_start|>' + message.role + '\\n' }}", "{{- '<|im_end|>\\n' }}"
GEN = "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"


def parts(image: str = IMAGE, video: str = VIDEO, of: str = "message.content", text: str = "part.text") -> str:
    """The loop over a message's parts, or its string."""
    return (
        f"{{%- if {of} is string %}}{{{{- {of} }}}}{{%- else %}}{{%- for part in {of} %}}"
        f"{{%- if part.type == 'image' or 'image' in part %}}{{{{- '{image}' }}}}"
        f"{{%- elif part.type == 'video' %}}{{{{- '{video}' }}}}"
        f"{{%- elif 'text' in part %}}{{{{- {text} }}}}{{%- endif %}}{{%- endfor %}}{{%- endif %}}"
    )


def chatml(
    body: str = HEAD + parts() + TAIL, *, start: str = QWEN_SYSTEM, end: str = GEN, over: str = "messages"
) -> str:
    return f"{start}{{%- for message in {over} %}}{body}{{%- endfor %}}{end}"


LLAMA_HEAD = "{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}"
LLAMA_GEN = "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"
GEMMA_BODY = "{{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\\n' }}" + parts(
    "<start_of_image>", ""
)
GEMMA_GEN = "{%- if add_generation_prompt %}{{- '<start_of_turn>model\\n' }}{%- endif %}"
TURN4 = (
    "{{- '<|turn>' + ('model' if message.role == 'assistant' else message.role) + '\\n' }}"
    + parts("<|image|>\\n", "<|video|>\\n")
    + "{{- '<turn|>\\n' }}"
)
FOLDED = (
    "{{- bos_token }}{%- if messages[0].role == 'system' %}{%- set first = messages[0].content if messages[0].content is string else messages[0].content[0].text %}"
    "{%- set rest = messages[1:] %}{%- else %}{%- set first = '' %}{%- set rest = messages %}{%- endif %}"
)  # fmt: skip


class Shape(NamedTuple):
    """A template, and the findings that it must give: kinds with their token, or with an empty text."""

    family: str
    """Empty: a model without a record."""
    tokens: tuple[str, ...]
    template: str
    found: tuple[tuple[K, str], ...] = ()
    bos: str | None = None
    eos: str = "<|im_end|>"
    adds_bos: bool = False


Q, U = "qwen2_5_vl", ""
SHAPES = {
    "parts": Shape(Q, CHATML, chatml()),
    "strings": Shape(Q, CHATML, chatml(HEAD + "{{- message['content'] }}" + TAIL)),
    "strings, and prose about a loop": Shape(U, CHATML, chatml(
        HEAD + "{{- message.content | string }}" + TAIL, start="{{- '<|im_start|>system\\nLook for answers in the given content.<|im_end|>\\n' }}")),
    "a comment about a loop": Shape(Q, CHATML, "{#- for part in content: strings only -#}" + chatml(HEAD + "{{- message.content }}" + TAIL)),
    "prose with Python's words": Shape(U, CHATML, chatml(
        start="{{- '<|im_start|>system\\nIf no tool helps, reply None of them. Call {\"a\": 1} or {\\'type\\': 1}.<|im_end|>\\n' }}")),
    "a tool branch": Shape(Q, CHATML, "{%- if tools %}{{- '<|im_start|>system\\n# Tools' }}{%- for tool in tools %}{{- tool | tojson }}"
        "{%- endfor %}{{- '<|im_end|>\\n' }}{%- endif %}" + chatml(
            "{%- if message.role == 'tool' %}{{- '<|im_start|>user\\n<tool_response>' }}{%- else %}" + HEAD + "{%- endif %}" + parts()
            + "{%- if message.tool_calls %}{%- for call in message.tool_calls %}{{- call.function.name }}{%- endfor %}{%- endif %}" + TAIL)),
    "counted in a namespace": Shape(Q, CHATML, "{%- set count = namespace(image=0) %}" + chatml(HEAD + parts().replace(
        "{{- '" + IMAGE, "{%- set count.image = count.image + 1 %}{%- if add_vision_id %}{{- 'Picture ' ~ count.image ~ ': ' }}{%- endif %}{{- '" + IMAGE) + TAIL)),
    "a reversed search for the last question": Shape(Q, CHATML, "{%- set ns = namespace(last=messages|length - 1) %}{%- for message in messages[::-1] %}"
        "{%- if message.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}" + chatml()),
    "a macro": Shape(Q, CHATML, "{%- macro render(content) %}" + parts(of="content") + "{%- endmacro %}"
        + chatml(HEAD + "{{- render(message.content) }}" + TAIL)),
    "a macro whose argument has another name": Shape(Q, CHATML, "{%- macro show(what) %}" + parts(of="what") + "{%- endmacro %}"
        + chatml(HEAD + "{{- show(what=message['content']) }}" + TAIL)),
    "content in a variable": Shape(Q, CHATML, chatml(HEAD + "{%- set content = message.content %}" + parts(of="content") + TAIL)),
    "generation tags": Shape(Q, CHATML, chatml(HEAD + "{%- if message.role == 'assistant' %}{%- generation %}" + parts()
        + "{%- endgeneration %}{%- else %}" + parts() + "{%- endif %}" + TAIL)),
    "the date of today": Shape(U, CHATML, chatml(start="{{- '<|im_start|>system\\nToday is ' + strftime_now('%Y-%m-%d') + '.<|im_end|>\\n' }}")),
    "raise_exception for roles": Shape("gemma3", GEMMA, "{{- bos_token }}{%- for message in messages %}{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{- raise_exception('Roles must alternate.') }}{%- endif %}" + GEMMA_BODY + "{{- '<end_of_turn>\\n' }}{%- endfor %}" + GEMMA_GEN,
        bos="<bos>", eos="<end_of_turn>", adds_bos=True),
    "system folded into the first question": Shape("gemma3", GEMMA, FOLDED + "{%- for message in rest %}" + GEMMA_BODY.replace(
        "+ '\\n' }}", "+ '\\n' }}{%- if loop.first and first %}{{- first + '\\n\\n' }}{%- endif %}", 1) + "{{- '<end_of_turn>\\n' }}{%- endfor %}" + GEMMA_GEN,
        bos="<bos>", eos="<end_of_turn>", adds_bos=True),
    "BOS in the template": Shape(U, LLAMA, "{{- bos_token }}" + chatml(LLAMA_HEAD + parts("<|image|>", "") + "{{- '<|eot_id|>' }}", start="", end=LLAMA_GEN),
        bos="<|begin_of_text|>", eos="<|eot_id|>", adds_bos=True),
    "BOS forgotten": Shape(U, LLAMA, chatml(LLAMA_HEAD + parts("<|image|>", "") + "{{- '<|eot_id|>' }}", start="", end=LLAMA_GEN),
        ((K.BOS_MISSING, "<|begin_of_text|>"),), bos="<|begin_of_text|>", eos="<|eot_id|>", adds_bos=True),
    "a picture in each of two turns": Shape("mllama", LLAMA, "{{- bos_token }}" + chatml(LLAMA_HEAD + parts("<|image|>", "") + "{{- '<|eot_id|>' }}", start="", end=LLAMA_GEN),
        bos="<|begin_of_text|>", eos="<|eot_id|>", adds_bos=True),
    "a switch of thinking": Shape(U, CHATML, chatml(end="{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
        "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}")),
    "thinking that is always on": Shape(U, CHATML, chatml(end="{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n' }}{%- endif %}")),
    "an empty thought of other tags": Shape("gemma4", GEMMA4, "{{- '<bos>' }}" + chatml(TURN4, start="",
        end="{%- if add_generation_prompt %}{{- '<|turn>model\\n<|channel>thought\\n<channel|>' }}{%- endif %}"),
        ((K.RECORD_DIFFERS, ""),), bos="<bos>", eos="<turn|>", adds_bos=True),
    "thoughts of earlier answers removed": Shape(Q, CHATML, chatml(HEAD + parts(
        text="part.text.split('</think>')[-1] if message.role == 'assistant' else part.text") + TAIL)),
    "Mistral's brackets": Shape("pixtral_hf", MISTRAL, "{{- bos_token }}{%- for message in messages %}{%- if message.role == 'user' %}{{- '[INST]' }}"
        + parts("[IMG]", "") + "{{- '[/INST]' }}{%- elif message.role == 'assistant' %}" + parts("[IMG]", "") + "{{- eos_token }}"
        "{%- else %}{{- raise_exception('No system message.') }}{%- endif %}{%- endfor %}", bos="<s>", eos="</s>", adds_bos=True),
    "an answer that is always opened": Shape("pixtral_hf", (*MISTRAL, "<|begin_user|>", "<|begin_assistant|>", "<|end|>"),
        "{{- bos_token }}" + chatml("{{- '<|begin_' + message.role + '|>\\n' }}" + parts("[IMG]", "") + "{{- '\\n<|end|>\\n' }}", start="",
        end="{%- if messages[-1].role != 'assistant' %}{{- '<|begin_assistant|>\\nHere is why:\\n' }}{%- endif %}"),
        ((K.GENERATION_PROMPT_ALWAYS, ""), (K.PREFILL_DIFFERS, ""), (K.RECORD_DIFFERS, "")), bos="<s>", eos="<|end|>", adds_bos=True),
    "ChatML that always opens an answer": Shape(Q, CHATML, chatml(end="{%- if messages[-1].role == 'user' %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"),
        ((K.GENERATION_PROMPT_ALWAYS, ""),)),
    "a space before text only": Shape("smolvlm", SMOL, "{{- '<|im_start|>' }}{%- for message in messages %}{{- message.role | capitalize }}"
        "{%- if message.content is not string and message.content[0].type == 'image' %}{{- ':' }}{%- else %}{{- ': ' }}{%- endif %}" + parts("<image>", "")
        + "{{- '<end_of_utterance>\\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- 'Assistant:' }}{%- endif %}", bos="<|im_start|>", eos="<end_of_utterance>"),
    "two passes, pictures first": Shape("llava", VICUNA, "{%- for message in messages %}{{- message.role.upper() + ': ' }}"
        "{%- for part in message.content if part.type == 'image' %}{{- '<image>\\n' }}{%- endfor %}"
        "{%- for part in message.content if part.type == 'text' %}{{- part.text + ' ' }}{%- endfor %}{%- endfor %}"
        "{%- if add_generation_prompt %}{{- 'ASSISTANT:' }}{%- endif %}",
        ((K.PLACEHOLDER_MOVED, ""), (K.BOS_MISSING, "<s>"), (K.TURN_NOT_CLOSED, "</s>"), (K.WHITE_SPACE, ""), (K.RECORD_DIFFERS, "")), bos="<s>", eos="</s>", adds_bos=True),
    "numbered pictures": Shape("phi3_v", PHI, "{%- set ns = namespace(n=0) %}" + chatml("{{- '<|' + message.role + '|>\\n' }}{%- if message.content is string %}"
        "{{- message.content }}{%- else %}{%- for part in message.content %}{%- if part.type == 'image' %}{%- set ns.n = ns.n + 1 %}{{- '<|image_' ~ ns.n ~ '|>\\n' }}"
        "{%- else %}{{- part.text }}{%- endif %}{%- endfor %}{%- endif %}{{- '<|end|>\\n' }}", start="",
        end="{%- if add_generation_prompt %}{{- '<|assistant|>\\n' }}{%- endif %}"), eos="<|end|>"),
    "no token for the picture": Shape(Q, ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|video_pad|>"), chatml(),
        ((K.UNKNOWN_TOKEN, "<|image_pad|>"),)),
    "no token for a picture's word": Shape("smolvlm", SMOL[:2], "{{- '<|im_start|>' }}{%- for message in messages %}{{- message.role | capitalize }}"
        "{%- if message.content is not string and message.content[0].type == 'image' %}{{- ':' }}{%- else %}{{- ': ' }}{%- endif %}" + parts("<image>", "")
        + "{{- '<end_of_utterance>\\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- 'Assistant:' }}{%- endif %}",
        ((K.UNKNOWN_TOKEN, "<image>"),), bos="<|im_start|>", eos="<end_of_utterance>"),
    "a picture's word that the processor replaces": Shape("internvl_chat", ("<|im_start|>", "<|im_end|>", "<IMG_CONTEXT>"),
        chatml(HEAD + parts("<image>\\n", "<video>\\n") + TAIL, start="")),
    "no token for the picture, no record": Shape(U, ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|video_pad|>"), chatml(),
        ((K.UNKNOWN_TOKEN, "<|image_pad|>"),)),
    "no picture and no end": Shape(Q, CHATML, chatml(HEAD + parts("") + "{{- '\\n' }}"),
        ((K.PLACEHOLDER_MISSING, "<|image_pad|>"), (K.TURN_NOT_CLOSED, "<|im_end|>"), (K.RECORD_DIFFERS, ""))),
    "fails for two reasons": Shape(Q, CHATML, chatml("{%- if message.role == 'system' %}\n{{- message.content.nothing.at_all }}\n{%- endif %}"
        "{%- for part in message.content if part is mapping and part.type == 'video' %}\n{{- part.frames.count }}\n{%- endfor %}" + HEAD + parts() + TAIL),
        ((K.TEMPLATE_FAILS, ""), (K.TEMPLATE_FAILS, ""))),
    "parts written as they are": Shape(Q, CHATML, chatml(HEAD + "{%- for part in message.content %}{{- part }}{%- endfor %}" + TAIL),
        ((K.PYTHON_PRINTED, "{'type':"), (K.TEXT_CHANGED, ""), (K.PLACEHOLDER_MISSING, "<|image_pad|>"), (K.PLACEHOLDER_MISSING, "<|video_pad|>"),
         (K.PREFILL_DIFFERS, ""), (K.RECORD_DIFFERS, ""))),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_exactly_the_faults_of_a_template_are_found(name: str, tmp_path: Path) -> None:
    shape = SHAPES[name]
    tokens = dict.fromkeys([*shape.tokens, shape.eos, *([shape.bos] if shape.bos else [])])
    write_tokenizer(
        tmp_path, tokens, eos=shape.eos, bos=shape.bos, add_bos=shape.adds_bos, chat_template=shape.template
    )
    family = Registry.bundled()[shape.family] if shape.family else unlisted_family("a model")
    canned = canned_conversations(family)
    reading = read_model(
        ReadRequest(folder=str(tmp_path), cases=tuple(render_case(family, one) for one in canned), varies=True)
    )
    found = check_reading(family, reading, canned)
    with_token = {K.UNKNOWN_TOKEN, K.BOS_MISSING, K.TURN_NOT_CLOSED, K.PLACEHOLDER_MISSING, K.PYTHON_PRINTED}
    told = [(one.kind, one.token if one.kind in with_token else "") for one in found]
    assert told == list(shape.found), [one.message for one in found]
