"""Checks a model's chat template and tokenizer, for the command `lint`."""

from __future__ import annotations

import shlex

import msgspec

from vlmtui.domain.model_reading import ReadRequest
from vlmtui.engine.interface import ModelReader
from vlmtui.errors import bad_input
from vlmtui.inspection.lint.check import check_reading, record_templates
from vlmtui.inspection.lint.finding import LintFinding
from vlmtui.inspection.lint.subject import TOKEN, canned_conversations, render_case
from vlmtui.inspection.prompt_turns import tail_of
from vlmtui.registry.hub_cache import model_folder
from vlmtui.registry.match import Model
from vlmtui.registry.model_files import file_faults


class LintReport(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    family: str
    folder: str
    """The folder of the model's files; empty: only the model family's TOML record was checked."""
    templates: dict[str, str]
    """The sources of the checked templates, by name. Hostile text."""
    conversations: tuple[str, ...]
    """Titles of the test conversations that they were rendered with."""
    tokenizer: str
    """The tokenizer's class; empty: none was read."""
    findings: tuple[LintFinding, ...]

    @property
    def scope(self) -> str:
        """The number of test conversations and the checked templates, for display: `19 conversations
        (chat_template.jinja)`. Hostile text."""
        if not self.templates:
            return "no template"
        return f"{len(self.conversations)} conversations ({', '.join(self.templates)})"


def lint_model(model: Model, reader: ModelReader, *, trust_remote_code: bool = False) -> LintReport:
    """Check the model's own chat template and tokenizer; if the model is not downloaded, check the chat template in its
    family's record. Blocking. Raises VlmtuiError."""
    family = model.family
    folder = model_folder(model.spec.model)
    own = None if folder is not None else record_templates(family)
    if own is not None and (not own or model.spec.model not in family.models[:1]):
        message = f"Can't check {model.spec.name}: it is not downloaded, and its record has no template of its own."
        raise bad_input(message, hint=f"{download_hint(model)} Or name a local folder.")
    written = TOKEN.findall(tail_of(family.raw.assistant))
    damaged = file_faults(folder, may_lack_weights=True) if folder is not None else []
    named = [token for token in family.stop_tokens if not token.startswith("@")]
    canned = canned_conversations(family, stop=next(iter([*written, *named]), ""))
    reading = reader.read(
        ReadRequest(
            folder=str(folder or ""),
            tokenizer=not any(one.part == "tokenizer" and one.is_needed for one in damaged),
            trust_remote_code=trust_remote_code,
            templates=own or {},
            cases=tuple(render_case(family, one) for one in canned),
            varies=True,
        )
    )
    found = check_reading(family, reading, canned, of_record=own is not None, damaged=damaged)
    return LintReport(
        model=model.spec.name,
        family=family.family,
        folder=str(folder or ""),
        templates={one.name: one.source for one in reading.templates},
        conversations=tuple(one.title for one in canned),
        tokenizer=reading.tokenizer.name if reading.tokenizer is not None else "",
        findings=tuple(found),
    )


def download_hint(model: Model) -> str:
    """Return a hint on how to download a repository without its weights."""
    gated = " It is gated: accept its terms on the hub first." if model.family.gated else ""
    files = '"*.json" "*.jinja" "*.txt" "*.model" "*.py"'
    return f"Download its small files: `hf download {shlex.quote(model.spec.model)} --include {files}`.{gated}"
