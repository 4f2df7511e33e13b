"""Tables from a series of documents, by differences, as supervisor and worker make them."""

from proxy import document, routing
from proxy.document import handover


class Served:
    """What a worker serves, document after document."""

    def __init__(self) -> None:
        self._reader = document.Reader()
        self._content: document.Content | None = None
        self.table: routing.Table | None = None

    def take(self, data: bytes) -> routing.Table:
        """The next table; the one before stays whole."""
        before, self._content = self._content, self._reader.read(data).content
        leaving, parts = handover.unpack(memoryview(handover.pack(before, self._content)))
        settings = leaving.settings or (self.table.settings if self.table else document.Settings())
        builder = routing.TableBuilder(settings, None if leaving.is_whole else self.table)
        list(builder.removing_routes(leaving.routes))
        builder.remove_backends(leaving.backends)
        list(builder.fill())
        for part in parts:
            builder.put_backends(part.backends)
            builder.add_routes((one.number, one.place, document.decode_route(one.text)) for one in part.routes)
        self.table = builder.finish()
        return self.table

    def refusal_of(self, data: bytes) -> tuple[document.Problem, ...]:
        try:
            self._reader.read(data)
        except document.DocumentError as error:
            return error.problems
        return ()
