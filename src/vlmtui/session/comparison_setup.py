"""Prepares a comparison of a message: whether the engine can do it, and what both sides share."""

from __future__ import annotations

from vlmtui.domain.capabilities import require_capability
from vlmtui.domain.conversation import all_attachments
from vlmtui.errors import bad_input
from vlmtui.registry.schema import Family
from vlmtui.session.compared_message import ComparedMessage
from vlmtui.session.comparison import CompareController, ComparisonInput
from vlmtui.session.engines import EngineController
from vlmtui.session.lane_engines import LaneEngines
from vlmtui.session.raw_draft import RawDraft


def comparison_of_message(
    message: ComparedMessage, draft: RawDraft, controller: EngineController, families: tuple[Family, ...]
) -> CompareController:
    """Return the comparison of a message. `families`: the registry's, whose placeholders the guard recognizes. Raises
    VlmtuiError if no engine is loaded, or if it takes no raw prompts like this one."""
    info, model = controller.require_info(), controller.require_model()
    require_capability(info, "raw_prompts")
    if all_attachments(message.turns):
        require_capability(info, "raw_media")
    settings = message.conversation.settings
    shared = ComparisonInput(message.turns, model.family, info, settings.sampling, families, settings.adapter)
    return CompareController(shared, draft)


def require_family(engines: LaneEngines, family: Family) -> None:
    """Raise VlmtuiError if a side's engine has a model of another family: its raw prompt would be another one."""
    for model in engines.models.values():
        if model.family.family != family.family:
            message = f"{model.spec.name} is {model.family.title}, not {family.title}: it needs another raw prompt."
            raise bad_input(message, hint="/compare engine=A,B asks models of different families.")
