"""What is known of the highlighted model, for wide terminals."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from vlmtui.ui.choices import Choice
from vlmtui.ui.machine import Fit, Machine, fit, gib, needed_bytes
from vlmtui.ui.text import one_line
from vlmtui.ui.widgets.model_list import context_text, size_text

_LABEL = 11


class ModelDetails(Static):
    """Title, note and facts of one model."""

    def show(self, choice: Choice | None, machine: Machine | None) -> None:
        """Show this one; nothing for None."""
        self.update(details(choice, machine) if choice else "")


def details(choice: Choice, machine: Machine | None) -> Content:
    """The text: a heading, the note, then a line a fact."""
    family = choice.family
    facts = [
        ("Takes", ", ".join(f"{modality} ×{takes.max_items}" for modality, takes in family.takes.items())),
        ("Parameters", size_text(choice.parameters_b)),
        ("Context", f"{context_text(choice.context)} tokens" if choice.context else "?"),
        ("Licence", family.licence or "?"),
    ]
    architectures = Content.styled("\n".join(one_line(name) for name in family.architectures), "$muted")
    others = [name for name in family.models if name != family.models[0]]
    blocks = [
        Content.assemble(
            (one_line(choice.title), "bold $text-accent"), "\n", (one_line(choice.model.spec.name), "$muted")
        ),
        Content(one_line(family.note)) if family.note else Content.styled("No note in its record.", "$muted"),
        Content("\n").join(_fact(label, value) for label, value in facts),
        architectures,
        _memory(choice, machine),
    ]
    if others:
        also = Content("\n").join(Content(f"  {one_line(name)}") for name in others)
        blocks.append(Content.assemble(("Also, by typing its name:\n", "$muted"), also))
    return Content("\n\n").join(blocks)


def _fact(label: str, value: str) -> Content:
    return Content.assemble((label.ljust(_LABEL), "$muted"), one_line(value))


def _memory(choice: Choice, machine: Machine | None) -> Content:
    if choice.parameters_b is None:
        return Content.styled("Its size is not known, so neither is whether it fits.", "$muted")
    needed = f"Needs about {gib(needed_bytes(choice.parameters_b))} in 16 bits."
    if machine is None:
        return Content.styled(needed, "$muted")
    verdict = {
        Fit.YES: ("✓ Fits: ", "$text-success"),
        Fit.SEVERAL: ("✓ Fits several GPUs together: ", "$text-warning"),
        Fit.NO: ("✗ Too big: ", "$text-error"),
        Fit.UNKNOWN: ("? ", "$muted"),
    }[fit(choice.parameters_b, machine)]
    return Content.assemble((needed + "\n", "$muted"), verdict, machine.describe() + ".")
