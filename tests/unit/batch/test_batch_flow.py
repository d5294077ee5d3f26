"""How many requests an engine gets at once, and how much is prepared ahead of it."""

from __future__ import annotations

import asyncio

from vlmtui.session.batch.flow import LEVEL_MAX, ConcurrencyLevel, PreparedLimit


def settled(level: ConcurrencyLevel, most_at_once: int, *, answers: int = 20_000) -> list[int]:
    """The levels that come up with an engine that takes a second an answer, for so many at once."""
    now, levels = 0.0, []
    for _ in range(answers):
        now += 1 / min(level.now, most_at_once)
        level.ended(10, now)
        levels.append(level.now)
    return levels


def test_it_rises_as_long_as_that_is_faster_and_goes_back() -> None:
    levels = settled(ConcurrencyLevel({}), 100)
    assert max(levels) <= 256
    assert min(levels[5_000:]) >= 64, "the engine is busy"
    assert levels[5_000:].count(128) > len(levels[5_000:]) / 2, "and not drowned most of the time"


def test_a_small_engine_is_not_drowned() -> None:
    levels = settled(ConcurrencyLevel({}), 4)
    assert sorted(set(levels)) == [8, 16]
    assert levels.count(8) > levels.count(16)


def test_what_the_engine_says_and_the_user_bound_it() -> None:
    assert [ConcurrencyLevel({"max_num_seqs": known}).now for known in (2, 8, 12, 256)] == [8, 32, 32, 512]
    assert max(settled(ConcurrencyLevel({"max_num_seqs": 8}), 1000)) == 64
    assert max(settled(ConcurrencyLevel({"max_num_seqs": 256}), 10**9)) == 1024
    assert max(settled(ConcurrencyLevel({"max_num_seqs": 8}, most=3), 1000)) == 3
    assert max(settled(ConcurrencyLevel({}), 10**9)) == LEVEL_MAX


async def test_what_is_prepared_ahead_is_bounded_by_tokens_and_bytes_but_one_item_is_let_in() -> None:
    ahead = PreparedLimit(tokens_max=100, bytes_max=1000)
    await ahead.enter(500, 10)
    waiting = asyncio.create_task(ahead.enter(10, 10))
    await asyncio.sleep(0)
    assert not waiting.done()
    ahead.leave(500, 10)
    await waiting
    large = asyncio.create_task(ahead.enter(1, 995))
    await asyncio.sleep(0)
    assert not large.done()
    ahead.add(0, -9)
    await large
