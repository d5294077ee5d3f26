"""Chat templates of model families that reason, reduced to the branches on their variables. Each keeps the family's own
structure of turns and writes exactly its texts; tools, videos and reasoning in the history are left out.

Sources: llama.cpp, models/templates (Gemma 4, GLM-4.5, Kimi-K3, StepFun3.7-Flash); vLLM, template_minicpmv45.jinja; the
package renderers 0.1.12 (Qwen3.5, Qwen3.8, Gemma 4 E, GLM-4.5, GLM-5.3, Kimi-K2.5, Nemotron 3); mistral-common,
template_generator.py; ms-swift (ERNIE, MiniMax-M3); llamadart's tests (GLM-4.5V).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

PICTURE = "@picture@"
_CONTENT = (
    "{%- if message['content'] is string -%}{{- message['content'] -}}{%- else -%}"
    "{%- for part in message['content'] -%}"
    "{%- if part['type'] == 'text' -%}{{- part['text'] -}}{%- else -%}{{- '@picture@' -}}{%- endif -%}"
    "{%- endfor -%}{%- endif -%}"
)


class ReasoningTemplate(NamedTuple):
    family: str
    """The family's record."""
    template: str
    """With `@content@` where a message's content is written, `PICTURE` for an image in it."""
    choices: tuple[Mapping[str, Any], ...]
    """Values of its variables: each at least once."""

    def source(self, picture: str) -> str:
        """Return the Jinja source. `picture`: the text for an image."""
        return self.template.replace("@content@", _CONTENT).replace(PICTURE, picture).strip()


def _chosen(name: str, *values: object) -> tuple[Mapping[str, Any], ...]:
    return tuple({name: value} for value in values)


_CHATML = """
{%- for message in messages -%}
    {{- '<|im_start|>' + message['role'] + '\\n' -}}@content@{{- '<|im_end|>\\n' -}}
{%- endfor -%}
"""
_QWEN = """
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\\n' -}}
    {%- if enable_thinking is defined and enable_thinking is false -%}
        {{- '<think>\\n\\n</think>\\n\\n' -}}
    {%- else -%}
        {{- '<think>\\n' -}}
    {%- endif -%}
{%- endif -%}
"""
_QWEN3_8 = (
    """
{%- set effort = reasoning_effort if reasoning_effort is defined else 'xhigh' -%}
{%- if effort not in ['xhigh', 'medium', 'low'] -%}{{- raise_exception('Unknown reasoning_effort.') -}}{%- endif -%}
{%- set told = '' -%}
{%- if not (enable_thinking is defined and enable_thinking is false) -%}
    {%- if effort == 'xhigh' -%}
        {%- set told = 'Reasoning effort is set to xhigh. Please think carefully through the task, validate key '
            'assumptions, consider plausible alternatives, and prioritize correctness, consistency, and clarity in the '
            'final answer.' -%}
    {%- elif effort == 'low' -%}
        {%- set told = 'Reasoning effort is set to low. Keep your thinking brief and focused, moving directly to the '
            'conclusion without unnecessary elaboration.' -%}
    {%- endif -%}
{%- endif -%}
{%- if told and messages[0]['role'] != 'system' -%}{{- '<|im_start|>system\\n' + told + '<|im_end|>\\n' -}}{%- endif -%}
{%- for message in messages -%}
    {{- '<|im_start|>' + message['role'] + '\\n' -}}
    {%- if told and message['role'] == 'system' -%}{{- told + '\\n\\n' -}}{%- endif -%}
    @content@{{- '<|im_end|>\\n' -}}
{%- endfor -%}
"""
    + _QWEN
)
_GEMMA4 = """
{{- bos_token -}}
{%- set loop_messages = messages -%}
{%- if (enable_thinking is defined and enable_thinking) or messages[0]['role'] in ['system', 'developer'] -%}
    {{- '<|turn>system\\n' -}}
    {%- if enable_thinking is defined and enable_thinking -%}{{- '<|think|>\\n' -}}{%- endif -%}
    {%- if messages[0]['role'] in ['system', 'developer'] -%}
        {%- set message = messages[0] -%}@content@
        {%- set loop_messages = messages[1:] -%}
    {%- endif -%}
    {{- '<turn|>\\n' -}}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{- '<|turn>' + role + '\\n' -}}@content@{{- '<turn|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|turn>model\\n' -}}EMPTY{%- endif -%}
"""
_GEMMA4_EMPTY = "{%- if not enable_thinking | default(false) -%}{{- '<|channel>thought\\n<channel|>' -}}{%- endif -%}"
_GLM4_5V = """
[gMASK]<sop>
{%- for message in messages -%}
{%- if message['role'] == 'user' -%}<|user|>
{{ '' }}@content@
{{- '/nothink' if (enable_thinking is defined and not enable_thinking) else '' -}}
{%- elif message['role'] == 'assistant' -%}<|assistant|>{{- '\\n<think></think>\\n' -}}@content@
{%- elif message['role'] == 'system' -%}<|system|>
{{ '' }}@content@
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|>
{{ '<think></think>\\n' if (enable_thinking is defined and not enable_thinking) else '' }}
{%- endif -%}
"""
_GLM5_3 = """
{%- set effort = reasoning_effort if reasoning_effort in ['low', 'high'] else 'max' -%}
[gMASK]<sop><|system|>Reasoning Effort: {{ effort | capitalize }}
{%- for message in messages -%}
{{- '<|' + message['role'] + '|>' -}}
{%- if message['role'] == 'assistant' -%}{{- '<think></think>' -}}{%- endif -%}@content@
{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|><think>{%- endif -%}
"""
_KIMI_K2_5 = """
{%- for message in messages -%}
{{- '<|im_' + message['role'] + '|>' + message['role'] + '<|im_middle|>' -}}
{%- if message['role'] == 'assistant' -%}{{- '<think></think>' -}}{%- endif -%}@content@{{- '<|im_end|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|im_assistant|>assistant<|im_middle|>
{%- if thinking is defined and thinking is false -%}<think></think>{%- else -%}<think>{%- endif -%}
{%- endif -%}
"""
_KIMI_K3 = """
{%- if thinking is undefined -%}{%- set thinking = true -%}{%- endif -%}
{%- if thinking_effort is undefined -%}{%- set thinking_effort = 'max' -%}{%- endif -%}
{%- if thinking and thinking_effort is not none and thinking_effort not in ['low', 'medium', 'high', 'max'] -%}
    {{- raise_exception('Unsupported thinking_effort.') -}}
{%- endif -%}
{%- if thinking and thinking_effort in ['low', 'medium', 'high', 'max'] -%}
    {{- '<|open|>message role="system" type="thinking-effort"<|sep|>' -}}
    {{- 'Now the system is invoked with `thinking_effort=' + thinking_effort + '`.' -}}
    {{- '<|close|>message<|sep|><|end_of_msg|>' -}}
{%- endif -%}
{%- for message in messages -%}
    {{- '<|open|>message role="' + message['role'] + '"<|sep|>' -}}
    {%- if message['role'] == 'assistant' -%}
        {%- if thinking -%}{{- '<|open|>think<|sep|><|close|>think<|sep|>' -}}{%- endif -%}
        {{- '<|open|>response<|sep|>' -}}@content@{{- '<|close|>response<|sep|>' -}}
    {%- else -%}@content@{%- endif -%}
    {{- '<|close|>message<|sep|><|end_of_msg|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|open|>message role="assistant"<|sep|>' -}}
    {{- '<|open|>think<|sep|>' if thinking else '<|open|>response<|sep|>' -}}
{%- endif -%}
"""
_STEP3_7 = """
{{- bos_token -}}
{%- if messages[0]['role'] != 'system' and reasoning_effort is defined -%}
    {{- '<|im_start|>system\\nReasoning: ' + reasoning_effort + '\\n\\n<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
    {{- '<|im_start|>' + message['role'] + '\\n' -}}
    {%- if message['role'] == 'system' and reasoning_effort is defined -%}
        {{- 'Reasoning: ' + reasoning_effort + '\\n\\n' -}}
    {%- elif message['role'] == 'assistant' and preserve_thinking is defined and preserve_thinking -%}
        {{- '<think>\\n\\n</think>\\n' -}}
    {%- endif -%}
    @content@{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n<think>\\n' -}}{%- endif -%}
"""
_MISTRAL = """
{{- '<s>' -}}
{%- if reasoning_effort is not defined or reasoning_effort is none -%}{%- set reasoning_effort = 'none' -%}{%- endif -%}
{%- if reasoning_effort not in ['none', 'high'] -%}
    {{- raise_exception('reasoning_effort must be either "none" or "high"') -}}
{%- endif -%}
{%- set settings = '[MODEL_SETTINGS]{"reasoning_effort": "' + reasoning_effort + '"}[/MODEL_SETTINGS]' -%}
{%- for message in messages -%}
    {%- if message['role'] == 'system' -%}[SYSTEM_PROMPT]@content@[/SYSTEM_PROMPT]{%- endif -%}
    {%- if loop.index0 == (1 if messages[0]['role'] == 'system' else 0) -%}{{- settings -}}{%- endif -%}
    {%- if message['role'] == 'user' -%}[INST]@content@[/INST]
    {%- elif message['role'] == 'assistant' -%}@content@{{- '</s>' -}}{%- endif -%}
{%- endfor -%}
"""
_MINICPM_V = (
    "{%- set enable_thinking = enable_thinking | default(false) -%}"
    + _CHATML
    + """
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\\n' -}}
    {%- if enable_thinking is defined and enable_thinking is false -%}{{- '<think>\\n\\n</think>\\n\\n' -}}{%- endif -%}
    {%- if enable_thinking is defined and enable_thinking is true -%}{{- '<think>\\n' -}}{%- endif -%}
{%- endif -%}
"""
)
_ERNIE = """
{{- '<|begin_of_sentence|>' -}}
{%- for message in messages -%}
    {%- if message['role'] == 'user' -%}{{- 'User: ' -}}@content@{{- '\\n' -}}
    {%- elif message['role'] == 'assistant' -%}{{- 'Assistant: ' -}}@content@{{- '<|end_of_sentence|>' -}}
    {%- else -%}@content@{{- '\\n' -}}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- 'Assistant: ' -}}
    {%- if enable_thinking is not defined or enable_thinking -%}<think>{%- else -%}<think></think>{%- endif -%}
{%- endif -%}
"""
_MINIMAX = """
{%- set mode = thinking_mode | default('adaptive') -%}
{%- set told = {'enabled': 'You MUST think.', 'disabled': 'Do not think.', 'adaptive': 'Decide.'} -%}
{{- ']~!b[]~b]system\\nCurrent thinking mode: ' + mode + '. ' + told[mode] + '[e~[\\n' -}}
{%- for message in messages -%}
    {{- ']~b]' + ('ai' if message['role'] == 'assistant' else message['role']) + '\\n' -}}@content@{{- '[e~[\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- ']~b]ai\\n' -}}
    {%- if thinking_mode == 'enabled' -%}{{- '<mm:think>' -}}
    {%- elif thinking_mode == 'disabled' -%}{{- '</mm:think>' -}}{%- endif -%}
{%- endif -%}
"""
_NEMOTRON = (
    _CHATML
    + """
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\\n' -}}
    {%- if enable_thinking is defined and not enable_thinking -%}{{- '<think></think>' -}}
    {%- else -%}{{- '<think>\\n' -}}{%- endif -%}
{%- endif -%}
"""
)
_SWITCH = _chosen("enable_thinking", True, False)

REASONING_TEMPLATES = {
    "Qwen3.5": ReasoningTemplate("qwen3_5", _CHATML + _QWEN, _SWITCH),
    "Qwen3.5 MoE": ReasoningTemplate("qwen3_5_moe", _CHATML + _QWEN, _SWITCH),
    "Qwen3.8": ReasoningTemplate(
        "qwen3_5",
        _QWEN3_8,
        (
            *_chosen("reasoning_effort", "low", "medium", "xhigh"),
            {"enable_thinking": False},
            {"enable_thinking": False, "reasoning_effort": "low"},
            {"enable_thinking": True, "reasoning_effort": "xhigh"},
        ),
    ),
    "Gemma 4": ReasoningTemplate("gemma4", _GEMMA4.replace("EMPTY", _GEMMA4_EMPTY), _SWITCH),
    "Gemma 4 E": ReasoningTemplate("gemma4_e", _GEMMA4.replace("EMPTY", ""), _SWITCH),
    "GLM-4.5V": ReasoningTemplate("glm4_5v", _GLM4_5V, _SWITCH),
    "GLM-4.6V-Flash": ReasoningTemplate("glm4_1v", _GLM4_5V, _SWITCH),
    "GLM-5.3-Flash": ReasoningTemplate("glm5_next", _GLM5_3, _chosen("reasoning_effort", "low", "high", "max")),
    "Kimi-K2.5": ReasoningTemplate("kimi_k25", _KIMI_K2_5, _chosen("thinking", True, False)),
    "Kimi-K3": ReasoningTemplate(
        "kimi_k3",
        _KIMI_K3,
        (*_chosen("thinking", True, False), *_chosen("thinking_effort", "low", "medium", "high", "max")),
    ),
    "Step-3.7": ReasoningTemplate(
        "step3p7", _STEP3_7, (*_chosen("reasoning_effort", "low", "high"), *_chosen("preserve_thinking", True, False))
    ),
    "Mistral Small 4": ReasoningTemplate("pixtral", _MISTRAL, _chosen("reasoning_effort", "none", "high")),
    "MiniCPM-V 4.5": ReasoningTemplate("minicpmv", _MINICPM_V, _SWITCH),
    "ERNIE 4.5 VL": ReasoningTemplate("ernie45_vl", _ERNIE, _SWITCH),
    "MiniMax-M3": ReasoningTemplate(
        "minimax_m3", _MINIMAX, _chosen("thinking_mode", "enabled", "disabled", "adaptive")
    ),
    "Nemotron Nano": ReasoningTemplate("nano_nemotron_vl", _NEMOTRON, _SWITCH),
}
