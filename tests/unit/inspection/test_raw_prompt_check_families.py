"""Raw prompts of every family, whole and broken."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.cases import in_one_test
from tests.unit.inspection.raw_prompts import REGISTRY, apply_fix, check, forms, items, kinds, prompts, written
from vlmtui.domain.conversation import Modality, user_turn
from vlmtui.inspection.placeholders import forms_of, occurrences
from vlmtui.inspection.prompt_turns import own_tokens
from vlmtui.inspection.raw_prompt_check import FindingKind
from vlmtui.registry.schema import Family

PROMPTS = json.loads((Path(__file__).parents[1] / "registry" / "prompts.json").read_bytes())
OF_EVERY_FAMILY = in_one_test({family.family: (family,) for family in REGISTRY.values()})


FOREIGN: dict[Modality, tuple[str, str]] = {
    "image": ("<|image_1|>", "<start_of_image>"),
    "video": ("<|video_pad|>", "(<video>./</video>)"),
    "audio": ("<audio_soft_token>", "(<audio>./</audio>)"),
}
"""Two placeholders of other families for each modality."""


@OF_EVERY_FAMILY
def test_a_prompt_of_the_familys_own_record_has_no_findings(family: Family) -> None:
    for text, attachments in prompts(family):
        assert check(text, attachments, family) == []


@OF_EVERY_FAMILY
def test_every_golden_text_has_as_many_placeholders_as_attachments(family: Family) -> None:
    for text in PROMPTS[family.family]:
        if not isinstance(text, str):
            continue
        counts: dict[Modality, int] = {}
        for modality in family.takes:
            form = forms_of(family, modality)
            counts[modality] = len(occurrences(text, form[1])) if form else 0
        assert not [finding for finding in check(text, items(counts), family) if finding.blocks]


@OF_EVERY_FAMILY
def test_a_removed_placeholder_is_missed_and_put_back(family: Family) -> None:
    for text, attachments in prompts(family):
        for form, count in forms(family, attachments):
            places = occurrences(text, form)
            assert len(places) == count
            for one in places:
                broken = text[: one.start] + text[one.end :]
                findings = check(broken, attachments, family)
                assert kinds(findings) == [FindingKind.TOO_FEW]
                assert findings[0].blocks
                assert "1 too few" in findings[0].message
                fix = findings[0].fix
                assert fix is not None
                assert fix.label.startswith("insert ")
                assert check(apply_fix(broken, fix), attachments, family) == []


@OF_EVERY_FAMILY
def test_all_placeholders_removed_are_put_where_the_record_has_them(family: Family) -> None:
    for text, attachments in prompts(family):
        for form, _ in forms(family, attachments):
            broken = text
            for one in reversed(occurrences(text, form)):
                broken = broken[: one.start] + broken[one.end :]
            (finding,) = check(broken, attachments, family)
            assert finding.kind is FindingKind.TOO_FEW
            assert finding.fix is not None
            assert check(apply_fix(broken, finding.fix), attachments, family) == []


@OF_EVERY_FAMILY
def test_an_added_placeholder_is_one_too_many_and_taken_out(family: Family) -> None:
    for text, attachments in prompts(family):
        for form, count in forms(family, attachments):
            one = occurrences(text, form)[-1]
            broken = text[: one.end] + " " + form.numbered_as(count + 1) + text[one.end :]
            (finding,) = check(broken, attachments, family)
            assert (finding.kind, finding.blocks) == (FindingKind.TOO_MANY, True)
            assert finding.fix is not None
            assert check(apply_fix(broken, finding.fix), attachments, family) == []


@OF_EVERY_FAMILY
def test_a_placeholder_without_an_attachment_blocks(family: Family) -> None:
    for modality in family.takes:
        text, attachments = written(family, [user_turn("q", items({modality: 1}))])
        if not list(forms(family, attachments)):
            continue
        (finding,) = check(text, [], family)
        assert (finding.kind, finding.blocks) == (FindingKind.TOO_MANY, True)
        assert finding.fix is not None
        assert check(apply_fix(text, finding.fix), [], family) == []


@OF_EVERY_FAMILY
def test_the_placeholder_of_another_family_is_replaced(family: Family) -> None:
    for modality in family.takes:
        text, attachments = written(family, [user_turn("q", items({modality: 1}))])
        for form, _ in forms(family, attachments):
            foreign, other = FOREIGN[modality]
            if foreign in own_tokens(family) or form.numbered:
                foreign = other
            if form.core in foreign:
                continue
            one = occurrences(text, form)[0]
            broken = text[: one.start] + foreign + text[one.end :]
            findings = check(broken, attachments, family)
            assert kinds(findings) == [FindingKind.TOO_FEW, FindingKind.FOREIGN]
            for finding in findings:
                assert finding.fix is not None
                assert check(apply_fix(broken, finding.fix), attachments, family) == []


@OF_EVERY_FAMILY
def test_an_unsupported_modality_blocks(family: Family) -> None:
    for modality in ("image", "video"):
        if modality not in family.takes:
            findings = check(written(family, [user_turn("q")])[0], items({modality: 1}), family)
            assert (findings[0].kind, findings[0].blocks, findings[0].fix) == (FindingKind.NOT_TAKEN, True, None)


@OF_EVERY_FAMILY
def test_a_missing_end_is_put_back(family: Family) -> None:
    """The generation prompt, the end of the user's turn, and BOS: taken away, noticed, restored exactly."""
    raw = family.raw
    if raw.by != "text":
        return
    text, _ = written(family, [user_turn("q?")])
    for part, kind in (
        (raw.generation_prompt, FindingKind.GENERATION_PROMPT),
        (raw.user.partition("{content}")[2], FindingKind.END_OF_TURN),
        (raw.bos, FindingKind.BOS_MISSING),
    ):
        if not part.strip():
            continue
        at = text.index(part) if kind is FindingKind.BOS_MISSING else text.rindex(part)
        broken = text[:at] + text[at + len(part) :]
        (finding,) = check(broken, [], family)
        assert finding.kind is kind
        assert not finding.blocks
        assert finding.fix is not None
        assert apply_fix(broken, finding.fix) == text


def test_every_family_distinguishes_images_and_videos() -> None:
    for family in REGISTRY.values():
        cores = [form[1].core for modality in family.takes if (form := forms_of(family, modality))]
        assert len(cores) == len(set(cores))
