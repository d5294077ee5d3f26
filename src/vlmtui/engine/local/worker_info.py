"""A worker found on this machine."""

from __future__ import annotations

import msgspec

from vlmtui.domain.engine import EngineStatus
from vlmtui.protocol.endpoint import Endpoint, WorkerRecord
from vlmtui.protocol.messages import StatusReport


class WorkerInfo(msgspec.Struct, frozen=True):
    """A living worker. `report` is None if it does not answer."""

    endpoint: Endpoint
    record: WorkerRecord | None
    report: StatusReport | None

    @property
    def status(self) -> EngineStatus | None:
        return None if self.report is None else self.report.status

    @property
    def name(self) -> str:
        """The name of its model, or the worker's id if that is unknown."""
        if self.status is not None:
            return self.status.spec.name
        return self.record.spec.name if self.record is not None else self.endpoint.worker_id

    def is_called(self, name: str) -> bool:
        """Whether people may mean it by this: its model's name, path or family, its pid or its id."""
        specs = [known.spec for known in (self.status, self.record) if known is not None]
        names = {text for spec in specs for text in (spec.name, spec.model, spec.family)}
        return name in names or name in (str(self.pid), self.endpoint.worker_id)

    @property
    def pid(self) -> int:
        """The guardian's pid; 0 if unknown."""
        if self.report is not None:
            return self.report.pid
        return self.record.pid if self.record is not None else 0
