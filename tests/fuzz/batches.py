"""Readers of what batches, recorded prompts, backups and adapters bring."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from tests.fuzz.campaign import Reader
from tests.unit.inspection.test_recorded import RECORDED
from tests.unit.store.made import attachment, opened
from vlmtui.cli.doctor import crashes_in
from vlmtui.domain.conversation import user_turn
from vlmtui.errors import VlmtuiError
from vlmtui.inspection.recorded import encode_recorded, read_recorded, recorded_side
from vlmtui.inspection.stages import compare_sides
from vlmtui.reading import decode_json
from vlmtui.session.adapters import find_adapter, list_adapters
from vlmtui.session.batch.items import BatchReader, Expectation
from vlmtui.session.batch.results import OutputFile, ResultFilter, ResultTable, read_results, score_of
from vlmtui.store.backup import restore_archive, write_archive

_OPENAI = (
    b'{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "shapes", "max_tokens": 5,'
    b' "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text":'
    b' "What?"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]}]}}\n'
)
_SHORT = (
    b'{"id": 7, "prompt": "What is it?", "images": ["cat.png"], "expect": "a cat", "sampling": {"temperature": 0}}\n'
    b'{"id": 8, "raw": "<image>Raw", "images": "cat.png"}\n{"id": 9, "messages": [{"role": "user", "content": "Hi"}]}\n'
)
_EXPECTED = (
    b'{"regex": "^(a|ab)+c{2,5}[^x]$"}',
    b'{"json_schema": {"$defs": {"a": {"$anchor": "b", "items": {"$ref": "#/$defs/a"}, "not": {"type": "string"},'
    b' "patternProperties": {"^x": true}}}, "allOf": [{"$ref": "#b"}], "properties": {"c": {"$dynamicRef": "#b"}}}}',
)
_ANSWERS = ("ababcc", '{"c": [1, [1.5e9]], "x": null}', "```json\n[[[]]]\n```")
_RESULTS = b"".join(
    b'{"id":"%d","line":%d,"key":"k%d","answer":"a cat","error":%s,"correct":true,"timings":{"total_s":1.5}}\n'
    % (number, number, number, b"null" if number % 2 else b'{"kind":"bad_input","message":"no"}')
    for number in range(1, 5)
)
_ADAPTER = b'{"r": 8, "peft_type": "LORA", "base_model_name_or_path": "owner/model", "target_modules": ["q_proj"]}'
_LOG = b"""2026-11-24 10:00:00 ERROR vlmtui: it failed
Traceback (most recent call last):
  File "/home/me/vlmtui/store/store.py", line 90, in open
    raise ValueError("no")
ValueError: no
"""


def batch_readers() -> list[Reader]:
    return [
        Reader("batch jsonl", _fixed(_OPENAI, _SHORT), _read_items),
        Reader("expected answers", _fixed(*_EXPECTED), _read_expected),
        Reader("batch results", _fixed(_RESULTS), _read_results),
        Reader("recorded file", _fixed(encode_recorded(RECORDED)), _read_recorded),
        Reader("backup", _backups, _read_backup),
        Reader("adapter_config.json", _fixed(_ADAPTER), _read_adapter),
        Reader("log in a report", _fixed(_LOG), lambda _, data: crashes_in(data.decode("utf-8", "replace"))),
    ]


def _fixed(*seeds: bytes) -> Callable[[Path], Sequence[bytes]]:
    return lambda _: seeds


def _read_items(folder: Path, data: bytes) -> None:
    """Every line is an item or a bad one with its place."""
    reader = BatchReader(io.BytesIO(data), base=folder, size=len(data))
    for item in reader:
        assert item.line >= 1
    assert reader.read <= len(data)


def _read_expected(_: Path, data: bytes) -> None:
    """What passes before an answer is there can be checked against any answer, or takes too long."""
    try:
        expected = decode_json(data, Expectation)
    except ValueError:
        return
    expected.require_valid()
    for answer in _ANSWERS:
        try:
            expected.holds(answer)
        except VlmtuiError as error:
            assert "took more than" in error.detail or "can't be used" in error.detail, error.detail


def _read_results(folder: Path, data: bytes) -> None:
    """Shown, scored, and gone on with; the new line stays."""
    path = folder / "out.jsonl"
    path.write_bytes(data)
    list(read_results(path))
    score_of(path)
    table = ResultTable(path)
    try:
        for shown in ResultFilter:
            table.show(shown)
            for row in range(len(table)):
                table[row]
    finally:
        table.close()
    output = OutputFile(path)
    try:
        line = msgspec.json.encode({"id": "new", "line": 99, "key": "k", "error": None})
        output.append([line])
        output.tidy()
    finally:
        output.close()
    assert line in path.read_bytes()


def _read_recorded(folder: Path, data: bytes) -> None:
    path = folder / "image.json"
    path.write_bytes(data)
    recorded = read_recorded(path)
    compare_sides(recorded_side(recorded), recorded_side(RECORDED))
    compare_sides(recorded_side(RECORDED), recorded_side(recorded))


def _backups(folder: Path) -> Sequence[bytes]:
    data = folder / "data"
    store = opened(data)
    picture = attachment(store.media, b"a picture")
    store.add_turn(store.new_conversation(title="Cats"), None, user_turn("What is it?", [picture]))
    store.close()
    write_archive(data, data / "media", folder / "backup.tar")
    return [(folder / "backup.tar").read_bytes(), (data / "conversations.db").read_bytes()]


def _read_backup(folder: Path, data: bytes) -> None:
    """A restored store is sound."""
    archive = folder / "backup.tar"
    archive.write_bytes(data)
    restore_archive(archive, folder / "data", folder / "data" / "media")
    opened(folder / "data").close()


def _read_adapter(folder: Path, data: bytes) -> None:
    (folder / "lora").mkdir()
    (folder / "lora" / "adapter_config.json").write_bytes(data)
    list_adapters(folder)
    find_adapter(str(folder / "lora"))
