"""The process that reads a model: its limits on time, memory and network, and foreign code only when allowed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.zoo.kit import write_tokenizer
from tests.zoo.templates import chatml
from vlmtui.domain.model_reading import FORMS, ReadRequest, ReadTrouble, RenderCase, TemplateTrouble, rendering_key
from vlmtui.engine.local.model_reader import LocalModelReader
from vlmtui.errors import VlmtuiError
from vlmtui.paths import Paths

pytestmark = pytest.mark.process
HELLO: dict[str, object] = {"role": "user", "content": "hello"}
CASES = (RenderCase("text", dict.fromkeys(FORMS, (HELLO,))),)
CODE = """
import os, socket
from pathlib import Path
from transformers import PreTrainedTokenizerFast

class OwnTokenizer(PreTrainedTokenizerFast):
    def __init__(self, *arguments, **options):
        ACT
        super().__init__(*arguments, **options)
"""


@pytest.fixture
def reader() -> LocalModelReader:
    return LocalModelReader(Paths.default())


def own_tokenizer(folder: Path, act: str) -> Path:
    """A tokenizer whose class comes with the model, and does something when it is made."""
    write_tokenizer(folder, ["<|im_start|>", "<|im_end|>"], eos="<|im_end|>", chat_template=chatml())
    file = folder / "tokenizer_config.json"
    named = {"auto_map": {"AutoTokenizer": [None, "own.OwnTokenizer"]}, "tokenizer_class": "OwnTokenizer"}
    file.write_text(json.dumps(json.loads(file.read_text()) | named))
    (folder / "own.py").write_text(CODE.replace("ACT", act))
    return folder


def test_endless_and_growing_templates_leave_the_others_readable(reader: LocalModelReader) -> None:
    templates = {
        "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "grows": "{% set ns = namespace(s='aa') %}{% for a in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "computes": "{{ (messages|length + 8) ** 1000000000 }}",
        "sound": "{{ messages[0]['content'] }}",
    }
    found = {one.name: one for one in reader.read(ReadRequest(templates=templates, cases=CASES)).templates}
    assert found["loops"].trouble is TemplateTrouble.ENDLESS
    assert found["computes"].trouble is TemplateTrouble.ENDLESS
    assert found["grows"].trouble in (TemplateTrouble.TOO_BIG, TemplateTrouble.ENDLESS)
    assert found["sound"].renderings[rendering_key("text", "text", generation_prompt=True)].text == "hello"


def test_a_models_own_code_runs_only_if_trusted(reader: LocalModelReader, tmp_path: Path) -> None:
    mark = tmp_path / "it-ran"
    folder = own_tokenizer(tmp_path / "model", f"Path({str(mark)!r}).touch()")
    asked = ReadRequest(folder=str(folder), cases=CASES)
    assert reader.read(asked).trouble is ReadTrouble.NEEDS_CODE
    assert not mark.exists()
    allowed = reader.read(ReadRequest(folder=str(folder), cases=CASES, trust_remote_code=True))
    assert allowed.trouble is None, allowed.message
    assert allowed.tokenizer is not None and allowed.tokenizer.name == "OwnTokenizer"
    assert mark.exists()


def test_trusted_code_has_no_network(reader: LocalModelReader, tmp_path: Path) -> None:
    folder = own_tokenizer(tmp_path / "model", "socket.create_connection(('127.0.0.1', 9))")
    reading = reader.read(ReadRequest(folder=str(folder), cases=CASES, trust_remote_code=True))
    assert reading.trouble is ReadTrouble.BROKEN
    assert "no network" in reading.message
    assert reading.templates[0].trouble is None


def test_a_process_that_hangs_or_dies_is_reported(tmp_path: Path) -> None:
    hanging = own_tokenizer(tmp_path / "hangs", "import signal; signal.pause()")
    with pytest.raises(VlmtuiError, match="took longer than 15 s"):
        LocalModelReader(Paths.default(), whole_s=15).read(
            ReadRequest(folder=str(hanging), cases=CASES, trust_remote_code=True)
        )
    dying = own_tokenizer(tmp_path / "dies", "os._exit(7)")
    with pytest.raises(VlmtuiError, match="ended with exit code 7"):
        LocalModelReader(Paths.default()).read(ReadRequest(folder=str(dying), cases=CASES, trust_remote_code=True))


def test_printed_text_is_not_part_of_the_result(reader: LocalModelReader, tmp_path: Path) -> None:
    folder = own_tokenizer(tmp_path / "model", "print('{}'); os.write(1, b'{}')")
    reading = reader.read(ReadRequest(folder=str(folder), cases=CASES, trust_remote_code=True))
    assert reading.tokenizer is not None


def test_the_hub_token_is_not_passed_on(
    reader: LocalModelReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    seen = tmp_path / "seen"
    folder = own_tokenizer(tmp_path / "model", f"Path({str(seen)!r}).write_text(os.environ.get('HF_TOKEN', 'none'))")
    reader.read(ReadRequest(folder=str(folder), cases=CASES, trust_remote_code=True))
    assert seen.read_text() == "none"
    assert os.environ["HF_TOKEN"] == "secret"
