"""`vlmtui prompt`: prints the prompt that a model would get, without an engine."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping

import msgspec

from vlmtui.bootstrap import build
from vlmtui.cli.attachments import add_media, stage_attachments, turns_with_placed
from vlmtui.cli.engine import add_preset_option, sampling_of
from vlmtui.cli.output import note, print_json
from vlmtui.cli.streams import read_question
from vlmtui.domain.conversation import Attachment, ChatPrompt, MessagesPrompt, Modality, RawPrompt, Text, Turn
from vlmtui.domain.dials import DIALS
from vlmtui.domain.engine import adapter_for
from vlmtui.domain.sampling import Sampling
from vlmtui.media.describe import attachment_line
from vlmtui.registry.estimate import estimated_tokens, settings_of
from vlmtui.registry.match import Model, Preset, engine_args_of, resolve, with_preset
from vlmtui.registry.routes import model_closed
from vlmtui.session.dials import described_extra, processor_arguments, variables_of
from vlmtui.session.generation import make_request
from vlmtui.text import visible

_ITEMS_MAX = 10_000


def fill_prompt(prompt: argparse.ArgumentParser) -> None:
    prompt.description = (
        "Print the raw prompt or the messages of one question, as `ask` and the app would send them. With "
        "files, also print the estimated tokens of each, from the model's record."
    )
    prompt.add_argument("family", metavar="MODEL", help="a family, a repository id or a local folder")
    prompt.add_argument("question", metavar="QUESTION", help="the question; - reads it from stdin")
    add_media(prompt)
    prompt.add_argument(
        "--images", type=_item_count, default=0, metavar="N", help="add N placeholders of images without files"
    )
    prompt.add_argument(
        "--videos", type=_item_count, default=0, metavar="N", help="add N placeholders of videos without files"
    )
    prompt.add_argument(
        "--audios", type=_item_count, default=0, metavar="N", help="add N placeholders of audio without files"
    )
    prompt.add_argument("--mode", choices=("raw", "chat"), default="raw", help="the raw prompt, or messages (raw)")
    prompt.add_argument("--system", metavar="S", dest="system_prompt", help="the system prompt")
    prompt.add_argument(
        "--set",
        action="append",
        metavar="NAME=VALUE",
        dest="set_parameters",
        help="a parameter, as in `ask --set`: --json shows what the engine and its processor get; may be repeated",
    )
    add_preset_option(prompt)
    prompt.add_argument("--json", action="store_true", help="print one JSON object")


def _item_count(text: str) -> int:
    """Parse a number of items from 0 to 10,000: each costs time and memory."""
    count = int(text)
    if not 0 <= count <= _ITEMS_MAX:
        raise argparse.ArgumentTypeError(f"{text}: from 0 to {_ITEMS_MAX:,}")
    return count


def prompt(arguments: argparse.Namespace) -> int:
    """Print the prompt. Raises VlmtuiError if the family does not accept the inputs."""
    application = build({"system_prompt": arguments.system_prompt}, tell=note)
    model = with_preset(resolve(application.registry, arguments.family), arguments.preset)
    question = read_question(arguments.question)
    attachments = stage_attachments(
        application.paths, arguments.media or (), num_frames=model.spec.num_frames, many=arguments.many
    )
    settings = settings_of(model.family, sum(item.modality == "image" for item in attachments), model.spec.engine_args)
    estimates = [(item, estimated_tokens(model.family, item, settings=settings)) for item in attachments]
    absent: dict[Modality, int] = {"image": arguments.images, "video": arguments.videos, "audio": arguments.audios}
    attachments += [
        _absent_attachment(kind, number) for kind, count in absent.items() for number in range(1, count + 1)
    ]
    counts = Counter(item.modality for item in attachments)
    turns = turns_with_placed(application.settings.system_prompt, question, attachments)
    sampling = sampling_of(application, model, arguments.set_parameters)
    request = make_request(model.family, turns, sampling, mode=arguments.mode)
    shown = request.prompt
    if arguments.json:
        estimated = [_estimate_json(item, tokens) for item, tokens in estimates]
        found = _as_json(model, shown, request.sampling, counts, arguments.preset)
        print_json(found | ({"attachments": estimated} if estimated else {}))
        return 0
    if error := model_closed(model.family, model.spec):
        note(f"note: {error}")
    for item, tokens in estimates:
        about = f"about {tokens:,} tokens, estimated by the record" if tokens is not None else "the record does not say"
        note(f"{attachment_line(item)} · {about}")
    match shown:
        case RawPrompt(text=text):
            print(visible(text))
        case MessagesPrompt():
            note(f"The {shown.by}'s chat template renders the prompt from these messages:")
            print_json(_messages(shown))
        case ChatPrompt():
            note("The chat template renders the prompt from these messages:")
            print_json(_messages(shown))
    return 0


def _as_json(
    model: Model,
    shown: ChatPrompt | RawPrompt | MessagesPrompt,
    sampling: Sampling,
    counts: Mapping[Modality, int],
    preset: Preset | None,
) -> dict[str, object]:
    family = model.family
    content: dict[str, object]
    match shown:
        case RawPrompt(text=text):
            content = {"kind": "text", "prompt": text}
        case MessagesPrompt(by=by, chat_template=template):
            content = {"kind": "messages", "messages": _messages(shown), "by": by, "chat_template": template}
        case ChatPrompt(chat_template=template):
            content = {"kind": "messages", "messages": _messages(shown), "by": "engine", "chat_template": template}
    wanted = {modality: count for modality, count in counts.items() if count}
    arguments = engine_args_of(family, wanted or None, preset=preset)
    if family.trust_remote_code:
        arguments["trust_remote_code"] = True
    video = family.takes.get("video")
    lora = adapter_for(model.spec, wanted)
    chosen = msgspec.to_builtins(family.sampling) if family.sampling else {}
    return {
        "family": family.family or None,
        "model": model.spec.name,
        **content,
        "stop_token_ids": list(sampling.stop_token_ids),
        "stop": list(sampling.stop_tokens),
        "engine_args": arguments,
        "mm_processor_kwargs": processor_arguments(sampling, arguments),
        "chat_template_kwargs": variables_of(sampling),
        "parameters": {name: value for name, value in described_extra(sampling).items() if name in DIALS},
        "sampling": chosen,
        "lora": {"name": lora.name, "id": lora.id, "path": lora.path} if lora else None,
        "needs_video_metadata": bool(video and video.metadata),
    }


def _estimate_json(item: Attachment, tokens: int | None) -> dict[str, object]:
    return {
        "name": item.name,
        "modality": item.modality,
        "width": item.width,
        "height": item.height,
        "estimated_tokens": tokens,
    }


def _messages(shown: ChatPrompt | MessagesPrompt) -> list[dict[str, object]]:
    if isinstance(shown, MessagesPrompt):
        return [msgspec.to_builtins(message) for message in shown.messages]
    return [{"role": turn.role, "content": _content(turn)} for turn in shown.turns]


def _content(turn: Turn) -> object:
    if not turn.attachments:
        return turn.text
    return [
        {"type": "text", "text": part.text} if isinstance(part, Text) else {"type": part.attachment.modality}
        for part in turn.parts
    ]


def _absent_attachment(modality: Modality, number: int) -> Attachment:
    """Return an attachment without a file: building a prompt needs only its modality."""
    return Attachment(
        modality=modality,
        name=f"{modality} {number}",
        path="",
        sha256="",
        width=0,
        height=0,
        size_bytes=0,
        format="",
    )
