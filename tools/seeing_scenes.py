"""Scenes of `screenshots.py` about images, audio and reasoning. Answers that the bundled model can't give come from a
stored conversation."""

from __future__ import annotations

import json
import wave
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from safetensors.numpy import save_file
from textual.pilot import Pilot

from vlmtui.domain.conversation import Attachment, user_turn
from vlmtui.domain.generation import Timings, Usage
from vlmtui.domain.thinking import Thought
from vlmtui.media.stage import stage
from vlmtui.paths import bundled
from vlmtui.registry.match import model_of
from vlmtui.session.engines import EngineState
from vlmtui.store.records import AnswerData, ConversationId, GenerationRecord, Statistics
from vlmtui.store.store import Store
from vlmtui.ui.app import VlmtuiApp
from vlmtui.ui.chat.screen import ChatScreen
from vlmtui.ui.compare.fan_out import FanOutScreen
from vlmtui.ui.inspector.screen import InspectorScreen
from vlmtui.ui.services import ExitReport
from vlmtui.ui.widgets.dialogs import ChoiceScreen

Until = Callable[[Pilot[ExitReport | None], Callable[[], bool]], Coroutine[Any, Any, None]]
Save = Callable[[VlmtuiApp, str], None]
SAMPLES = bundled("samples")
THOUGHT = """<think>The user wants boxes of the cat and its eyes. The cat fills most of the picture, from 40 to 890 \
across. The left eye is at about 380, 390, the right one at 705, 457. The nose is a point, so point_2d fits.</think>

"""


async def documents(app: VlmtuiApp, pilot: Pilot[ExitReport | None], until: Until, save: Save) -> None:
    """Ask about pages of a PDF file."""
    folder = app.services.paths.data
    pages = [Image.open(SAMPLES / f"{name}.png").convert("RGB") for name in ("circle", "two-shapes", "three-shapes")]
    pages[0].save(folder / "shapes.pdf", save_all=True, append_images=pages[1:])
    chat = app.conversation.require_chat()
    app.run_action_id("attach", f"{folder / 'shapes.pdf'}#page=1-3")
    await until(pilot, lambda: len(chat.draft.attachments) == 3)
    await pilot.press(*"What is in these images?")
    await pilot.pause(1)
    count = len(chat.exchanges)
    await pilot.press("enter")
    await until(pilot, lambda: len(chat.exchanges) > count and chat.running is None)
    save(app, "documents")


async def adapters(app: VlmtuiApp, pilot: Pilot[ExitReport | None], until: Until, save: Save) -> None:
    """Answer with a LoRA adapter of random matrices, and ask whether that changes anything."""
    folder = write_adapter(app.services.paths.data / "loras" / "random")
    controller = app.engines
    app.run_action_id("adapter", str(folder))
    await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
    before = controller.engine
    await pilot.press("enter")
    await until(pilot, lambda: controller.engine is not before and controller.state is EngineState.READY)
    await until(pilot, lambda: isinstance(app.screen, ChatScreen))
    app.run_action_id("fan_out", f"adapter=none,{folder}")
    await until(pilot, lambda: isinstance(app.screen, FanOutScreen))
    screen = app.screen
    assert isinstance(screen, FanOutScreen)
    await until(pilot, lambda: bool(str(screen.query_one("#verdict").render())))
    save(app, "adapters")
    await pilot.press("escape")
    await until(pilot, lambda: isinstance(app.screen, ChatScreen))


async def recorded(
    app: VlmtuiApp, pilot: Pilot[ExitReport | None], until: Until, save: Save, picture: Path, answer: str
) -> None:
    """Open stored conversations: reasoning and JSON in the chat; an audio file and its waveform in the inspector."""
    media = app.services.paths.media
    boxes = stored(app, "qwen3_vl", stage(picture, media), "Locate the cat, its eyes and its nose.", THOUGHT + answer)
    sound = stage(write_chirp(app.services.paths.data / "chirp.wav"), media)
    heard = stored(app, "qwen2_5_omni", sound, "What do you hear?", "A tone that rises for two seconds, then falls.")
    for conversation, name in ((boxes, "thinking"), (heard, "sound")):
        app.stored.open(conversation)
        await until(pilot, lambda wanted=conversation: app.conversation.require_chat().id == wanted)  # type: ignore[misc]
        await until(pilot, lambda: isinstance(app.screen, ChatScreen))
        if name == "thinking":
            app.run_action_id("toggle_thinking")
            await pilot.pause(2)
            if app.size.height < 30:  # the answer alone fills the screen
                await pilot.press("pageup")
                await pilot.pause(0.5)
        else:
            app.run_action_id("inspect")
            await until(pilot, lambda: isinstance(app.screen, InspectorScreen))
            await pilot.press("3")
            await pilot.pause(2)
        save(app, name)
    await pilot.press("escape")
    await until(pilot, lambda: isinstance(app.screen, ChatScreen))


def stored(app: VlmtuiApp, family: str, attachment: Attachment, question: str, answer: str) -> ConversationId:
    """Store a conversation with answers that a model of the family would give."""
    paths, record = app.services.paths, app.services.registry[family]
    model = model_of(record)
    store = Store.open(paths.data, paths.media)
    conversation = store.new_conversation(title=question, model=model.spec.name)
    turn = store.add_turn(conversation, None, user_turn(question, [attachment]))
    tags = record.thinking.tags if record.thinking else None
    made = GenerationRecord(
        model=model.spec.model, family=family, engine="vLLM", engine_version="0.32.0", thinking=tags,
        attachments=(attachment.sha256,), prompt=question,
    )  # fmt: skip
    tokens = len(answer) // 4
    said = Statistics(
        usage=Usage(prompt_tokens=420, completion_tokens=tokens),
        timings=Timings(ttft_s=0.4, total_s=tokens / 40),
        finish_reason="stop",
        thought=Thought(seconds=2.1, tokens=61) if THOUGHT in answer else None,
    )
    store.write_answer(store.begin_answer(turn, made), answer, AnswerData(state="complete", statistics=said))
    store.close()
    return conversation


def write_chirp(path: Path) -> Path:
    """Write a tone that rises from 200 to 2,000 Hz and falls again, three seconds long, as WAV."""
    rate = 16_000
    pitch = np.interp(np.arange(3 * rate) / rate, (0, 2, 3), (200, 2000, 400))
    loudness = np.interp(np.arange(3 * rate) / rate, (0, 0.5, 1.8, 3), (0.05, 0.9, 0.5, 0.0))
    samples = np.sin(2 * np.pi * np.cumsum(pitch) / rate) * loudness * 32_000
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.astype("<i2").tobytes())
    return path


def write_adapter(folder: Path, rank: int = 4) -> Path:
    """Save a LoRA adapter of random matrices for the bundled model, in PEFT's format."""
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((bundled("shapes") / "config.json").read_text())
    text = config.get("text_config", config)
    size, random = text["hidden_size"], np.random.default_rng(1)
    weights = {}
    for layer in range(text["num_hidden_layers"]):
        base = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        weights[f"{base}.lora_A.weight"] = random.normal(size=(rank, size)).astype(np.float32)
        weights[f"{base}.lora_B.weight"] = random.normal(size=(size, rank)).astype(np.float32) * np.float32(0.03)
    save_file(weights, folder / "adapter_model.safetensors")
    facts = {"peft_type": "LORA", "r": rank, "lora_alpha": 8, "target_modules": ["q_proj"], "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps({**facts, "base_model_name_or_path": "shapes"}))
    return folder
