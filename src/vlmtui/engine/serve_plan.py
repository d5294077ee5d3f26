"""Derives the command lines of `vllm serve` for a model from its record: one line for each node.

The flags are those of vLLM 0.32. How ranks are spread over nodes was tried with that version: data parallel with whole
replicas on each node, or one replica over all nodes by tensor and pipeline parallel.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import zip_longest

import msgspec

from vlmtui.domain.adapter_choice import adapters_of
from vlmtui.domain.engine import SERVED_BACKEND, LoadSpec
from vlmtui.engine.machine import Machine, gib
from vlmtui.engine.memory_fit import attention_heads, claimed_share, estimate
from vlmtui.engines.serve_flags import Flag, feature_flags, model_flags, private_server_flags
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.registry.match import Model

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_RPC_PORT = 13345
_MASTER_PORT = 29611
_RAY_PORT = 6379
_SIZES = frozenset({"tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"})


class RankLayout(msgspec.Struct, frozen=True, kw_only=True):
    """How the ranks of an engine are spread, and where it listens."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    nodes: int = 1
    node_address: str = ""
    """The address of the first node, which the other nodes reach; needed for several nodes."""
    host: str = "127.0.0.1"
    port: int = 8000
    ray: bool = False
    """Whether Ray starts the ranks on the other nodes, instead of vLLM's own launcher."""

    @property
    def gpus_per_replica(self) -> int:
        """The number of GPUs over which one copy of the weights is split."""
        return self.tensor * self.pipeline

    @property
    def gpus_per_node(self) -> int:
        """The number of GPUs used on each node."""
        return self.gpus_per_replica * self.data // self.nodes


class ServePlan(msgspec.Struct, frozen=True):
    """The command lines that serve a model, and why."""

    model: str
    layout: RankLayout
    flags: tuple[Flag, ...]
    """Those that all nodes share."""
    node_flags: tuple[tuple[Flag, ...], ...]
    """Those of each node that runs `vllm serve`, the first node first. With Ray that is the first alone."""
    bytes_per_gpu: int | None
    """Estimated; None if the model's size is unknown."""
    warnings: tuple[str, ...] = ()

    @property
    def ray_starts(self) -> tuple[tuple[str, ...], ...]:
        """With Ray: the words of the command that each node runs first, and the others alone."""
        if not self.layout.ray:
            return ()
        first = ("ray", "start", "--head", "--node-ip-address", self.layout.node_address, "--port", str(_RAY_PORT))
        other = ("ray", "start", "--address", f"{self.layout.node_address}:{_RAY_PORT}")
        return first, *((other,) * (self.layout.nodes - 1))

    @property
    def commands(self) -> tuple[tuple[str, ...], ...]:
        """The words of each `vllm serve`."""
        shared = [word for flag in self.flags for word in flag.words]
        return tuple(
            ("vllm", "serve", self.model, *shared, *(word for flag in flags for word in flag.words))
            for flags in self.node_flags
        )

    @property
    def lines(self) -> tuple[tuple[str, ...], ...]:
        """Each node's command lines, quoted for a POSIX shell."""
        starts = [shlex.join(words) for words in self.ray_starts]
        serves = [shlex.join(words) for words in self.commands]
        both = zip_longest(starts, serves, fillvalue="")
        return tuple(tuple(line for line in lines if line) for lines in both)


def plan_serving(model: Model, layout: RankLayout, machine: Machine | None) -> ServePlan:
    """Return the plan to serve a model. `machine`: where it will run; None: unknown, so nothing is said of its memory.

    Raises VlmtuiError(BAD_USAGE) for a layout that vLLM refuses, or that was never tried.
    """
    _check_layout(model, layout)
    found = estimate(model)
    needed = None if found is None else round(found.per_gpu(layout.gpus_per_replica))
    return ServePlan(
        model.spec.model,
        layout,
        (
            *model_flags(_spec_of_one_rank(model.spec)),
            *feature_flags(video="video" in model.family.takes),
            *_size_flags(layout),
        ),
        tuple(_node_flags(layout, rank) for rank in range(1 if layout.ray else layout.nodes)),
        needed,
        tuple(_warnings(model, layout, machine, needed)),
    )


def plan_running(model: Model, layout: RankLayout, machine: Machine, *, for_cpu: bool) -> ServePlan:
    """Return the plan to serve a model on this machine, with vlmtui as the only client. `for_cpu`: by a build of vLLM
    for the CPU.

    Raises VlmtuiError(BAD_USAGE) as `plan_serving` does, and for several nodes.
    """
    if layout.nodes > 1:
        raise _bad_layout("Only a server on one machine can be started here.", "Leave out --run, or --nodes.")
    plan = plan_serving(model, layout, machine)
    where = Flag(("--uds", "SOCKET"), "a socket that only you can open")
    return ServePlan(
        plan.model,
        layout,
        private_server_flags(running_spec(model, layout), for_cpu=for_cpu),
        ((where,),),
        plan.bytes_per_gpu,
        plan.warnings,
    )


def running_spec(model: Model, layout: RankLayout) -> LoadSpec:
    """Return the spec by which the worker starts this server."""
    sizes = {"tensor": layout.tensor, "pipeline": layout.pipeline, "data": layout.data}
    more = {f"{name}_parallel_size": size for name, size in sizes.items() if size > 1}
    spec = _spec_of_one_rank(model.spec)
    return msgspec.structs.replace(spec, backend=SERVED_BACKEND, engine_args={**spec.engine_args, **more})


def _check_layout(model: Model, layout: RankLayout) -> None:
    heads = attention_heads(model)
    if heads is not None and heads % layout.tensor:
        sizes = ", ".join(str(size) for size in range(1, min(heads, 64) + 1) if heads % size == 0)
        message = f"{model.spec.name} has {heads} attention heads, which {layout.tensor} does not divide."
        raise _bad_layout(message, f"Choose a tensor parallel size of {sizes}.")
    if layout.nodes == 1 and layout.ray:
        raise _bad_layout("Ray is for several nodes.", "Add --nodes N, or leave out --launcher.")
    if layout.nodes == 1:
        return
    if not layout.node_address:
        message = "Several nodes need the address of the first one."
        raise _bad_layout(message, "Add --node-address ADDRESS: one that the other nodes reach.")
    if layout.data > 1 and layout.data % layout.nodes:
        message = f"{layout.data} replicas do not spread evenly over {layout.nodes} nodes."
        raise _bad_layout(message, f"Choose a multiple of {layout.nodes}, or 1 replica over all nodes.")
    if layout.data == 1 and layout.gpus_per_replica % layout.nodes:
        message = f"{layout.gpus_per_replica} GPUs of one replica do not spread evenly over {layout.nodes} nodes."
        raise _bad_layout(message, f"Choose --tensor times --pipeline as a multiple of {layout.nodes}.")


def _bad_layout(message: str, hint: str) -> VlmtuiError:
    return VlmtuiError(ErrorKind.BAD_USAGE, message, hint=hint)


def _spec_of_one_rank(spec: LoadSpec) -> LoadSpec:
    """Return the spec without sizes: those of the layout are used."""
    arguments = {name: value for name, value in spec.engine_args.items() if name not in _SIZES}
    return msgspec.structs.replace(spec, engine_args=arguments)


def _size_flags(layout: RankLayout) -> Iterator[Flag]:
    if layout.tensor > 1:
        yield Flag(("--tensor-parallel-size", str(layout.tensor)), "each layer is split over so many GPUs")
    if layout.pipeline > 1:
        yield Flag(("--pipeline-parallel-size", str(layout.pipeline)), "the layers are dealt out to so many stages")
    if layout.data > 1:
        yield Flag(("--data-parallel-size", str(layout.data)), "so many copies of the model share the requests")


def _node_flags(layout: RankLayout, rank: int) -> tuple[Flag, ...]:
    flags: list[Flag] = []
    if layout.ray and layout.data > 1:
        local = layout.data // layout.nodes
        flags += [
            Flag(("--data-parallel-backend", "ray"), "Ray starts the copies on the nodes"),
            Flag(("--data-parallel-size-local", str(local)), "the copies on this node"),
        ]
    elif layout.ray:
        flags.append(Flag(("--distributed-executor-backend", "ray"), "Ray starts the parts of the copy on the nodes"))
    elif layout.nodes > 1 and layout.data > 1:
        local = layout.data // layout.nodes
        flags += [
            Flag(("--data-parallel-size-local", str(local)), "the copies on this node"),
            Flag(("--data-parallel-address", layout.node_address), "the first node, which all others reach"),
            Flag(("--data-parallel-rpc-port", str(_RPC_PORT)), "the port of the first node for the other nodes"),
        ]
        if rank:
            flags.append(Flag(("--data-parallel-start-rank", str(rank * local)), "the first copy on this node"))
        else:
            flags.append(Flag(("--api-server-count", "1"), "one address for all copies"))
    elif layout.nodes > 1:
        flags += [
            Flag(("--nnodes", str(layout.nodes)), "one copy over all nodes"),
            Flag(("--node-rank", str(rank)), "which node this is"),
            Flag(("--master-addr", layout.node_address), "the first node, which all others reach"),
            Flag(("--master-port", str(_MASTER_PORT)), "the port of the first node for the other nodes"),
        ]
    if rank:
        return (*flags, Flag(("--headless",), "the first node answers requests; this one only computes"))
    where = Flag(("--host", layout.host), "where it listens"), Flag(("--port", str(layout.port)), "where it listens")
    return (*flags, *where)


def _warnings(model: Model, layout: RankLayout, machine: Machine | None, needed: int | None) -> Iterator[str]:
    if layout.host not in _LOOPBACK:
        yield (
            "Others on the network can reach it: set VLLM_API_KEY in its environment, never on its command line. "
            "vLLM asks for no key at /metrics, /tokenize and /invocations, and the last one answers chats."
        )
    if layout.ray:
        yield "Lines with Ray were not run: vLLM refuses Ray without GPUs. Every node needs Ray, vLLM and the model."
    if layout.nodes > 1:
        port = _RAY_PORT if layout.ray else _RPC_PORT if layout.data > 1 else _MASTER_PORT
        yield f"Ports {port} and others between the nodes have no key at all."
    for adapter in adapters_of(model.spec):
        yield f"The record's adapter {adapter.name!r} is not part of this line: add --lora-modules NAME=FOLDER."
    if machine is None or not machine.gpus:
        return
    if layout.gpus_per_node > len(machine.gpus):
        yield f"It needs {layout.gpus_per_node} GPUs on each node; this machine has {len(machine.gpus)}."
        return
    share = claimed_share(model)
    free = sorted((min(gpu.free, int(gpu.total * share)) for gpu in machine.gpus), reverse=True)
    if needed is not None and needed > free[layout.gpus_per_node - 1]:
        yield f"It needs about {gib(needed)} of each GPU; here {gib(free[layout.gpus_per_node - 1])} can be used."
