"""An engine's metrics over the worker's socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.support.fault_server import fault_server, sends
from tests.worker.hosted import EchoEngine
from tests.worker.stage import Stage, answer, ready, request, serving
from tests.worker.test_remote import connected
from vlmtui.domain.engine import LoadSpec
from vlmtui.domain.generation import Failure
from vlmtui.domain.metrics import EngineMetrics, MetricsSample, RankMetrics
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.worker.server import Limits

METRICS = 'vllm:num_requests_running{engine="0",model_name="shapes"} 2.0\n'


class Measured(EchoEngine):
    """Counts how often it was asked; `away` makes it fail."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.away = False

    async def metrics(self) -> EngineMetrics:
        self.asked += 1
        if self.away:
            raise VlmtuiError(ErrorKind.NO_NETWORK, "Nothing listens.")
        ranks = (RankMetrics(rank="0", generated_tokens=self.asked),)
        nothing = (None, None, None)
        return EngineMetrics(
            models=("m",),
            ranks=ranks,
            media_lookups=None,
            media_hits=None,
            first_token_s=nothing,
            between_tokens_s=nothing,
        )


@pytest.fixture
def engine() -> Measured:
    return Measured()


@pytest.fixture
async def stage(short_path: Path, engine: Measured) -> AsyncIterator[Stage]:
    async def load(spec: LoadSpec) -> Measured:
        return engine

    async with serving(short_path, load, limits=Limits(metrics_every_s=0.01)) as found:
        yield found


def generated(told: MetricsSample | Failure) -> int | None:
    assert isinstance(told, MetricsSample)
    return told.metrics.ranks[0].generated_tokens


async def test_an_engine_is_sampled_only_while_somebody_follows(stage: Stage, engine: Measured) -> None:
    client = await ready(await stage.client())
    assert client.info is not None and client.info.capabilities.metrics
    await answer(client, request("one two"))
    assert engine.asked == 0, "nobody wants to know"
    async with aclosing(client.metrics()) as told:
        assert [generated(await anext(told)) for _ in range(3)] == [1, 2, 3]
    await client.status()  # so that it has heard that nobody follows
    asked = engine.asked
    await answer(client, request("one two", "again"))
    assert engine.asked <= asked + 1, "a sample may be under way"
    other = await ready(await stage.client())
    async with aclosing(other.metrics()) as told:
        assert generated(await anext(told)) in (asked + 1, asked + 2)
    await client.close()
    await other.close()


async def test_a_failed_sample_is_reported_and_the_next_follows(stage: Stage, engine: Measured) -> None:
    client = await ready(await stage.client())
    engine.away = True
    async with aclosing(client.metrics()) as told:
        first = await anext(told)
        assert isinstance(first, Failure) and first.message == "Nothing listens."
        engine.away = False
        async for one in told:
            if isinstance(one, MetricsSample):
                break
    await client.close()


async def test_an_engine_that_ends_ends_the_samples(stage: Stage) -> None:
    client = await ready(await stage.client())
    async with aclosing(client.metrics()) as told:
        await anext(told)
        other = await stage.client()
        await other.shutdown()
        with pytest.raises(VlmtuiError) as ended:
            async for _ in told:
                pass
    assert ended.value.kind is ErrorKind.ENGINE_DIED


async def test_an_engine_without_metrics_has_no_samples(short_path: Path) -> None:
    async def load(spec: LoadSpec) -> EchoEngine:
        return EchoEngine()

    async with serving(short_path, load) as stage:
        client = await ready(await stage.client())
        with pytest.raises(VlmtuiError, match="doesn't report its requests"):
            await anext(client.metrics())
        await client.close()


async def test_a_server_reports_its_metrics_or_their_absence() -> None:
    async with fault_server() as server:
        engine = await connected(server)
        server.replies["/metrics"] = [sends(METRICS, kind="text/plain"), sends("nothing"), sends("", status=404)]
        assert (await engine.metrics()).ranks[0].running == 2
        with pytest.raises(VlmtuiError, match="tells no metrics of vLLM"):
            await engine.metrics()
        with pytest.raises(VlmtuiError, match="tells no metrics of vLLM") as refused:
            await engine.metrics()
        assert "404" in refused.value.detail
        server.replies["/metrics"] = [sends({"error": {"message": "start it with --metrics"}}, status=501)]
        with pytest.raises(VlmtuiError, match="tells no metrics of vLLM") as refused:
            await engine.metrics()
        assert "--metrics" in refused.value.detail
        await engine.shutdown()
