"""Chat templates of the zoo's models: built from what differs between families."""

from __future__ import annotations

import json
from collections.abc import Mapping
from string import Template

_PARTS = """{%- for part in message['content'] -%}
{%- if part['type'] == 'image' -%}{{- $image -}}
{%- elif part['type'] == 'video' -%}{{- $video -}}
{%- elif part['type'] == 'audio' -%}{{- $audio -}}
{%- elif part['type'] == 'text' -%}{{- part['text'] -}}
{%- endif -%}
{%- endfor -%}"""
_MEDIA_FIRST = """{%- for part in message['content'] -%}
{%- if part['type'] == 'image' -%}{{- $image -}}
{%- elif part['type'] == 'video' -%}{{- $video -}}
{%- elif part['type'] == 'audio' -%}{{- $audio -}}
{%- endif -%}
{%- endfor -%}
{%- for part in message['content'] -%}
{%- if part['type'] == 'text' -%}{{- part['text'] -}}{%- endif -%}
{%- endfor -%}"""
_TEXT_OR_PARTS = """{%- if message['content'] is string -%}
{{- message['content'] -}}
{%- else -%}
$parts
{%- endif -%}"""
_SPACE = """{%- if message['content'] is string or message['content'][0]['type'] != 'image' -%}{{- ' ' -}}{%- endif -%}
"""
_MESSAGES = """{{- $start -}}
{%- set before = $before -%}
{%- set after = $after -%}
{%- if messages[0]['role'] != 'system' -%}{{- $default_system -}}{%- endif -%}
{%- for message in messages -%}
{{- before[message['role']] -}}
$content
{{- after[message['role']] -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- $answer -}}{%- endif -%}"""


def chat_template(
    before: Mapping[str, str],
    after: Mapping[str, str] | str,
    answer: str,
    *,
    image: str = "",
    video: str = "",
    audio: str = "",
    start: str = "",
    default_system: str = "",
    media_first: bool = False,
    space_before_text: bool = False,
) -> str:
    """A Jinja template.

    `before` and `after` name what encloses a message of each role, `answer` what the model's answer follows, `start`
    what comes first of all, `default_system` what stands where no system message is. With neither an `image` nor a
    `video` placeholder the template takes plain strings only, and the engine itself puts the placeholders into them.
    """
    if isinstance(after, str):
        after = dict.fromkeys(before, after)
    content = "{{- message['content'] -}}"
    if image or video:
        written = {"image": json.dumps(image), "video": json.dumps(video), "audio": json.dumps(audio)}
        parts = _fill(_MEDIA_FIRST if media_first else _PARTS, **written)
        content = _fill(_TEXT_OR_PARTS, parts=parts)
    if space_before_text:
        content = _SPACE + content
    return _fill(
        _MESSAGES,
        start=json.dumps(start),
        before=json.dumps(dict(before)),
        after=json.dumps(dict(after)),
        answer=json.dumps(answer),
        default_system=json.dumps(default_system),
        content=content,
    )


def _fill(template: str, **pieces: str) -> str:
    return Template(template).substitute(pieces)


def chatml(
    image: str = "",
    video: str = "",
    *,
    audio: str = "",
    default_system: str = "",
    no_system: str = "",
    answer: str = "<|im_start|>assistant\n",
    media_first: bool = False,
) -> str:
    """The template of ChatML: `<|im_start|>user`, a new line, the message, `<|im_end|>`.

    Where there is no system message, `default_system` is one, or `no_system` stands in its place.
    """
    roles = ("system", "user", "assistant", "tool")
    end = "<|im_end|>\n"
    return chat_template(
        {role: f"<|im_start|>{role}\n" for role in roles},
        end,
        answer,
        image=image,
        video=video,
        audio=audio,
        default_system=f"<|im_start|>system\n{default_system}{end}" if default_system else no_system,
        media_first=media_first,
    )
