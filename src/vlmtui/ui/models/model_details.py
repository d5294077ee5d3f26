"""The facts of the highlighted model, for wide terminals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.content import Content

from vlmtui.engine.machine import Machine, gib
from vlmtui.engine.memory_fit import Fit, check_fit
from vlmtui.registry.routes import model_closed, route_name, status_of
from vlmtui.session.models import Choice
from vlmtui.text import one_line
from vlmtui.ui.document.blocks import TextBlock, fact
from vlmtui.ui.models.model_list import context_text, size_text

if TYPE_CHECKING:
    from vlmtui.engine.remote_models import Server
    from vlmtui.worker.backends.remote.probe import Feature

_LABEL = 11


def model_details(choice: Choice, machine: Machine | None) -> list[TextBlock]:
    """Return heading, note and facts, one on each line."""
    family = choice.family
    if choice.server is not None:
        return _served_details(choice, choice.server)
    facts = [
        ("Takes", ", ".join(f"{modality} ×{takes.max_items}" for modality, takes in family.takes.items())),
        ("Parameters", size_text(choice.parameters_b)),
        ("Context", f"{context_text(choice.context)} tokens" if choice.context else "?"),
        ("Licence", _licence(choice)),
        ("Route", f"{route_name(family, choice.backend)}: {status_of(family, choice.backend)}"),
        *([("", "not in the registry")] if not choice.model.listed else []),
        *[("or", other.text) for other in choice.backends if other != choice.backend],
        ("Checked", {"engine": "tiny model, real engine", "trained": "trained model"}.get(family.checked, "no")),
    ]
    if family.trust_remote_code:
        facts.append(("Own code", "asks before it runs"))
    error = model_closed(family, choice.model.spec)
    architectures = Content.styled("\n".join(one_line(name) for name in family.architectures), "$muted")
    others = [name for name in family.models if name != family.models[0]]
    title = Content.assemble(
        (one_line(choice.title), "bold $text-accent"), "\n", (one_line(choice.model.spec.name), "$muted")
    )
    blocks = [
        TextBlock(title),
        *([TextBlock(one_line(family.note), margin=1)] if family.note else []),
        *_facts(facts),
        TextBlock(architectures, margin=1),
        *([TextBlock(Content.styled(one_line(str(error)), "$text-error"), margin=1)] if error else []),
        TextBlock(_memory(choice, machine), margin=1),
    ]
    if others:
        also = Content("\n").join(Content(f"  {one_line(name)}") for name in others)
        blocks.append(TextBlock(Content.assemble(("Also, by typing its name:\n", "$muted"), also), margin=1))
    return blocks


def _served_details(choice: Choice, server: Server) -> list[TextBlock]:
    family, found = choice.family, server.facts
    facts = [
        ("Server", server.address),
        ("Runs", (f"vLLM {found.version}" if found.version else "not vLLM") if found else "?"),
        ("Answers in", f"{found.latency_s * 1000:.0f} ms" if found else "?"),
        ("Family", family.title if family.family else "not in the registry"),
        ("Takes", ", ".join(f"{modality} ×{takes.max_items}" for modality, takes in family.takes.items())),
        ("Context", f"{context_text(choice.context)} tokens" if choice.context else "?"),
    ]
    if choice.served is not None and choice.served.parent:
        facts.append(("LoRA of", choice.served.parent))
    blocks = [TextBlock(Content.styled(one_line(choice.model.spec.name), "bold $text-accent")), *_facts(facts)]
    if found is not None:
        blocks.append(TextBlock(Content("\n").join(_feature(one) for one in found.features), margin=1))
    return blocks


def _feature(feature: Feature) -> Content:
    if feature.on:
        return Content.assemble(("✓ ", "$text-success"), feature.name)
    flag = f"\n  {feature.flag} switches it on" if feature.flag else ""
    return Content.assemble(("✗ ", "$text-warning"), feature.name, (flag, "$muted"))


def _licence(choice: Choice) -> str:
    """Return the record's licence, which is that of the family's first model; others may differ."""
    family, model = choice.family, choice.model.spec.model
    if not family.licence:
        return "?"
    known = f"{family.licence}{', asks for an agreement' if family.gated else ''}"
    return known if choice.bundled or model == family.models[0] else f"? ({family.models[0]}: {known})"


def _facts(facts: Sequence[tuple[str, str]]) -> list[TextBlock]:
    return [fact(label, one_line(value), _LABEL, margin=not at) for at, (label, value) in enumerate(facts)]


def _memory(choice: Choice, machine: Machine | None) -> Content:
    verdict = check_fit(choice.model, machine)
    if not verdict.needed:
        return Content.styled("Size unknown; can't tell if it fits.", "$muted")
    needed = f"Needs about {gib(verdict.needed)}."
    if machine is None:
        return Content.styled(needed, "$muted")
    said = {
        Fit.YES: ("✓ Fits: ", "$text-success"),
        Fit.SEVERAL: ("✓ Fits several GPUs together: ", "$text-warning"),
        Fit.NO: ("✗ Too big: ", "$text-error"),
        Fit.UNKNOWN: ("? ", "$muted"),
    }[verdict.fit]
    advice = f"\nWould fit with {one_line(verdict.advice)}." if verdict.advice else ""
    return Content.assemble((needed + "\n", "$muted"), said, machine.describe() + ".", (advice, "$muted"))
