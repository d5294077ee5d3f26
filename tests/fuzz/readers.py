"""The table: every reader of data that a person did not type."""

from __future__ import annotations

from tests.fuzz.batches import batch_readers
from tests.fuzz.campaign import Reader
from tests.fuzz.media import media_readers
from tests.fuzz.servers import server_readers
from tests.fuzz.sessions import session_readers
from tests.fuzz.stored import comparison_documents, stored_readers
from tests.fuzz.texts import text_readers
from tests.fuzz.web import web_readers

READERS: dict[str, Reader] = {
    reader.name: reader
    for reader in (
        *text_readers(),
        *stored_readers(),
        *media_readers(),
        *web_readers(),
        *server_readers(),
        *batch_readers(),
        *session_readers(comparison_documents),
    )
}
