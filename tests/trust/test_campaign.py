"""Hostile inputs of every kind touch no canary; and the campaign notices when a guard is off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

import vlmtui.engine.local.launcher as launcher
import vlmtui.registry.loader as loader
import vlmtui.session.resume as resume
from tests.trust import campaign
from tests.trust.campaign import SHARES, run_kind
from tests.trust.canaries import Canaries
from tests.trust.inputs import ARGUMENTS, Inputs
from tests.unit.store.made import COMPLETE, opened
from vlmtui.domain.conversation import user_turn
from vlmtui.domain.sampling import Sampling
from vlmtui.export.conversation import to_json_document
from vlmtui.registry.match import model_of
from vlmtui.session.resume import load_conversation, stored_model
from vlmtui.store.document import add_document, document_of, read_document
from vlmtui.store.records import GenerationRecord


@pytest.mark.slow
@pytest.mark.parametrize("kind", SHARES)
def test_no_canary_is_touched(kind: str) -> None:
    result = run_kind(kind, 20 if SHARES[kind] < 5 else 120, seed=7)
    assert result.findings == []
    assert result.refused > 0 or result.launched > 0


def test_every_argument_is_planted_in_every_kind_of_document(tmp_path: Path) -> None:
    canaries = Canaries(tmp_path / "canary")
    canaries.folder.mkdir()
    canaries.prepare()
    inputs = Inputs(canaries, 1)
    honest: dict[str, Any] = {"sides": [{}], "sampling": {}}
    for number, name in enumerate(ARGUMENTS):
        drawn = [
            inputs.document(number), inputs.record(number), inputs.golden(number), inputs.folder(number)["config.json"],
            json.dumps(inputs.recipe(number)).encode(), json.dumps(inputs.served(number)).encode(),
        ]  # fmt: skip
        assert all(name.encode() in one for one in drawn if b"tarsier:Thing" not in one), name
        assert inputs.comparison(number, honest)
    canaries.close()


def test_the_campaign_notices_a_launcher_without_its_check() -> None:
    with (
        mock.patch.object(launcher, "check_engine_args"),
        mock.patch.object(loader, "refused_by_record", return_value=None),
    ):
        assert run_kind("record", 60, seed=7).findings


def test_the_campaign_notices_a_contacted_server() -> None:
    def obeyed(registry: object, servers: object, point: resume.ResumePoint) -> object:
        assert point.record is not None and point.record.made_by is not None
        shapes = model_of(campaign.REGISTRY["shapes"])
        arguments = {"url": point.record.made_by.server, "api_key_file": "canary-key"}
        return msgspec.structs.replace(
            shapes, spec=msgspec.structs.replace(shapes.spec, backend="remote", engine_args=arguments, typed=("url",))
        )

    with mock.patch.object(campaign, "resumed_model", obeyed), mock.patch.object(launcher, "check_engine_args"):
        assert run_kind("document", 30, seed=7).findings


def test_the_campaign_notices_settings_that_accept_everything() -> None:
    with mock.patch("vlmtui.session.resume.stored_sampling", lambda sampling: sampling):
        assert run_kind("document", 60, seed=7).findings


def test_an_honest_document_continues_with_the_local_model(tmp_path: Path) -> None:
    shapes = model_of(campaign.REGISTRY["shapes"])
    sampling = Sampling(temperature=0.3, extra={"min_tokens": 2})
    made = GenerationRecord(
        model=shapes.spec.model, family="shapes", engine="vLLM", engine_version="0.32.0", sampling=sampling,
        engine_args=shapes.spec.engine_args, made_by=stored_model(shapes.spec),
    )  # fmt: skip
    store = opened(tmp_path / "a")
    conversation = store.new_conversation(title="t", model="shapes")
    asked = store.add_turn(conversation, None, user_turn("go"))
    store.write_answer(store.begin_answer(asked, made), "gone", COMPLETE)
    exported = to_json_document(document_of(store, conversation)).text
    store.close()
    other = opened(tmp_path / "b")
    found = add_document(other, read_document(exported.encode()), tmp_path).conversation
    assert resume.resumed_model(campaign.REGISTRY, {}, resume.resume_point(other, found)) == shapes
    settings = load_conversation(other, conversation=found).settings
    assert settings is not None and settings.sampling == sampling
    other.close()
