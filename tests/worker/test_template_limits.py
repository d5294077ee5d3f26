"""Chat templates that never end or grow for ever, and texts that are too long: they fail, and nothing else waits."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from vlmtui.domain.sampling import Sampling
from vlmtui.domain.template import TEMPLATE
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.worker.hf.rendering import PROCESSES_MAX, TemplateProcesses, TemplateRefusal
from vlmtui.worker.hf.template_variables import read_variables
from vlmtui.worker.template_process import PIECE

pytestmark = pytest.mark.process
HELLO = [{"role": "user", "content": "hello"}]
LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
"""Ten billion rounds; the sandbox allows ranges of a hundred thousand."""
GROWTH = "{% set n = namespace(x='x' * 1000000) %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}"
POWER = "{% set x = (messages|length + 2) ** 1000000000 %}"
"""One operation that takes a minute."""
TWICE = (
    "{% set n = namespace(a=[1], b=[1]) %}{% for i in range(60) %}"
    "{% set n.a = [n.a, n.a] %}{% set n.b = [n.b, n.b] %}{% endfor %}"
)
ENDLESS = {
    "a loop": LOOP,
    "an operation": POWER,
    "a comparison": TWICE + "{{ n.a == n.b }}",
    "JSON": TWICE + "{{ n.a|tojson }}",
    "a sort": "{{ (['a' * 1000000] * 100000)|sort }}",
    "a filter": "{{ ('x' * 100000000)|wordwrap(1) }}",
}
GROWING = {
    "a text": GROWTH,
    "a list": "{{ [0] * 10 ** 10 }}",
    "a width": "{{ '%099999999999d'|format(1) }}",
    "a constant": "{{ 'x'|center(10000000000) }}",
    "a separator": "{{ (range(99999)|list)|join('x' * 100000) }}",
    "the result": "{% for i in range(99) %}{{ 'x' * 1000000 }}{% endfor %}",
}


async def troubles(templates: TemplateProcesses, sources: dict[str, str], **limits: Any) -> dict[str, str]:
    found = await asyncio.gather(
        *(templates.render(source, HELLO, {}, **limits) for source in sources.values()), return_exceptions=True
    )
    return {name: str(one) for name, one in zip(sources, found, strict=True)}


async def test_nothing_that_a_template_computes_stops_this_process_or_other_templates(
    templates: TemplateProcesses,
) -> None:
    failing = asyncio.create_task(troubles(templates, ENDLESS, seconds=0.3))
    longest, before = 0.0, time.monotonic()
    while not failing.done():
        await asyncio.sleep(0.01)
        longest, before = max(longest, time.monotonic() - before), time.monotonic()
    assert longest < 2, "the event loop stood still"
    for name, said in failing.result().items():
        assert "did not finish within 0.3 s of processor time" in said, name
    assert await templates.render("{{ messages[0].content }}", HELLO, {}) == "hello"


async def test_a_template_takes_no_more_memory_than_its_limit(templates: TemplateProcesses) -> None:
    for name, said in (await troubles(templates, GROWING, more=2**28)).items():
        assert "exceeds its memory limit" in said, name


async def test_waiting_counts_against_no_limit(templates: TemplateProcesses) -> None:
    slow = dict.fromkeys(range(2 * PROCESSES_MAX), LOOP)
    failing = [asyncio.create_task(templates.render(one, HELLO, {}, seconds=0.2)) for one in slow.values()]
    assert await templates.render("{{ 6 * 7 }}", HELLO, {}, seconds=0.2) == "42"
    assert {str(one) for one in await asyncio.gather(*failing, return_exceptions=True)} == {
        "The chat template did not finish within 0.2 s of processor time. Use a raw prompt or another chat template."
    }


async def test_a_template_that_fails_says_why(templates: TemplateProcesses) -> None:
    for source, said in {
        "{{ raise_exception('only images') }}": "only images",
        "{{ 1 // 0 }}": "division",
        "{% if %}": "Expected an expression",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": "recursion",
        "{{ '\\ud800' }}": "surrogate",
        f"{{{{ {'1' * 5000} }}}}": "4300 digits",
    }.items():
        with pytest.raises(TemplateRefusal, match=said):
            await templates.render(source, HELLO, {})


async def test_a_requests_variables_are_checked_there_too(templates: TemplateProcesses) -> None:
    source = "{% if style == 'dry' or style == 10 ** 30 or style == 1" + "0" * 30 + " %}{% endif %}"
    asked = [Sampling(extra={TEMPLATE: given}) for given in ({}, {"style": "dry"}, {"stile": "dry"})]
    assert [await templates.variables(one, source) for one in asked[:2]] == [{}, {"style": "dry"}]
    with pytest.raises(VlmtuiError, match="does not read stile"):
        await templates.variables(asked[2], source)
    assert await templates.variables(asked[2], "{% if %}") == {"stile": "dry"}
    assert await templates.variables(asked[2], "") == {"stile": "dry"}
    assert await templates.content_format(
        "{% for m in messages %}{% for p in m.content %}{% endfor %}{% endfor %}"
    ) == ("openai")


def test_reading_the_variables_computes_no_constants() -> None:
    before = time.process_time()
    for constant in ("3 ** 1000000000", "'x'|center(9999999999)", "1 is divisibleby(0)", "1" * 5000):
        assert read_variables("{% if style %}{{ " + constant + " }}{% endif %}") in ({"style": (True, False)}, None)
    assert time.process_time() - before < 2


class WordTokenizer:
    """A tokenizer of Transformers with one token for a word."""

    def __init__(self) -> None:
        self.backend_tokenizer = Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
        self.backend_tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        self.backend_tokenizer.enable_truncation(8)


async def test_what_is_too_long_is_refused_and_what_fits_is_not() -> None:
    templates = TemplateProcesses(WordTokenizer(), 10_000)
    try:
        for text in ("a " * 1000, "a" * 12_000_000, " " * 12_000_000, ("a" + " " * 1000) * 10_000, "a " * 10_000):
            await templates.require_fit(text)
        before = time.monotonic()
        for text in ("a " * 6_000_000, "a " * (PIECE + 10_000)):
            with pytest.raises(VlmtuiError) as caught:
                await templates.require_fit(text)
            assert caught.value.kind is ErrorKind.CONTEXT_TOO_LONG
            assert "10,000" in caught.value.detail
        assert time.monotonic() - before < 20
    finally:
        templates.close()
