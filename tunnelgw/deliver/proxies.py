"""A proxy replica as a target: it should hold the newest document of its data plane.

Each version is one above the version that the proxy has loaded, so clocks do not matter, and the next leader continues
where the last one stopped. If the proxy was restarted empty, or was given another document by hand, its version differs
from the one that we sent, and it gets our document again.
"""

import math
from collections.abc import Callable

import msgspec

from daemonkit.logs import get_logger
from tunnelgw.deliver.configclient import ConfigClient, ConfigEndpoint, VersionConflict
from tunnelgw.deliver.courier import Undelivered
from tunnelgw.deliver.receipts import Remark, RemarkKind
from tunnelgw.deliver.targets import Author

log = get_logger(__name__)

_MAX_CONFLICTS = 3
"""More in a row mean that somebody else keeps writing."""
_MANY_REPLACED = 3
"""This many visits in a row must find another document than ours, or none: a single one may be an accident."""
_REPLACED = (
    "somebody else keeps replacing its document, for example another controller that names this proxy, so that ours is "
    "served only at times"
)
_LOST = "it loses its document again and again: it keeps being restarted, or several proxies are behind its address"


class _Listener(msgspec.Struct, frozen=True, rename="camel"):
    gateway: str = ""
    created_at: str = ""
    """Empty for those that only keep a port closed."""


class _Written(msgspec.Struct, frozen=True):
    listeners: tuple[_Listener, ...] = ()


# Made before there are threads: while one thread has msgspec analyse a type, others that use that type would crash.
_decode_written = msgspec.json.Decoder(_Written).decode


class DocumentParcel(msgspec.Struct, frozen=True):
    """A document without its version."""

    digest: str
    tail: tuple[bytes, ...]
    """What follows `{"version":N` in its JSON, so it begins with a comma or brace. In pieces, most of which are the
    same objects as in the previous parcel."""
    over: int | Author | None = None
    """If set, the document only replaces this version, or a document for this Gateway: if another one is loaded,
    nothing is sent."""

    @classmethod
    def nothing(cls, over: int | Author) -> "DocumentParcel":
        """An empty document, for a proxy that we left with version `over`, or another controller with a document for
        that Gateway."""
        return cls(f"nothing over {over}", (b"}",), over)


class ProxyTarget:
    """`on_version` is called with each version that the proxy takes."""

    look_soon_s = math.inf

    def __init__(
        self, endpoint: ConfigEndpoint, client: ConfigClient, on_version: Callable[[int], None] = lambda _: None
    ) -> None:
        self.name = endpoint.url
        self._client = client
        self._on_version = on_version
        self._is_by_name = endpoint.is_by_name
        self._held_digest = ""
        """Of the parcel that was taken as `_held_version`; empty: what the proxy holds is not known to be ours."""
        self._held_version: int | None = None
        """What the proxy last said; None: nothing, or that is not known."""
        self._replaced = 0
        """How many visits in a row have found somebody else's document, or none."""
        self._replaced_how = ""

    def close(self) -> None:
        self._client.close()

    def deliver(self, parcel: DocumentParcel) -> tuple[Remark, ...]:
        try:
            return self._deliver(parcel) if parcel.over is None else self._replace(parcel, parcel.over)
        finally:
            # During a rollout a Service has two proxies, and the new one replaces the old one only once it has its
            # document. A new connection is needed to reach it.
            if self._is_by_name:
                self._client.close()

    def _deliver(self, parcel: DocumentParcel) -> tuple[Remark, ...]:
        remarks = self._visit(parcel) if parcel.digest == self._held_digest else self._bring(parcel)
        return (*remarks, *self._replacements())

    def _bring(self, parcel: DocumentParcel) -> tuple[Remark, ...]:
        if self._held_version is None:
            loaded = self._client.loaded()
            self._held_version = None if loaded is None else loaded.version
        try:
            return self._put_above(parcel, (self._held_version or 0) + 1)
        except Undelivered as failure:
            if failure.is_refusal:
                self._found(None)  # to be read again: a wrong version would be refused again and again
            raise

    def _visit(self, parcel: DocumentParcel) -> tuple[Remark, ...]:
        """Check that it still holds what it was sent, without problems."""
        loaded = self._client.loaded()
        version = None if loaded is None else loaded.version
        if version == self._held_version:
            self._replaced = 0
            if loaded is None or not loaded.has_problems:
                return ()
        else:
            log.warning(
                "proxy does not hold what it was sent, sending it again",
                target=self.name,
                sent_version=self._held_version,
                document_version=version,
            )
            self._found(version)
            if version is None and not self._is_by_name:  # a name may lead to a new proxy each time
                self._note_replaced(_LOST)
        try:
            # If the same document is loaded already, perhaps from another controller, sending it with the loaded
            # version does not load it again.
            return self._put(parcel, 1 if version is None else version)
        except VersionConflict as conflict:
            self._note_replaced(_REPLACED)
            self._found(conflict.loaded)
            version = conflict.loaded
        return self._put_above(parcel, version + 1, _MAX_CONFLICTS - 1)

    def _put_above(self, parcel: DocumentParcel, version: int, attempts: int = _MAX_CONFLICTS) -> tuple[Remark, ...]:
        for _ in range(attempts):
            try:
                return self._put(parcel, version)
            except VersionConflict as conflict:
                self._found(conflict.loaded)
                version = conflict.loaded + 1
        raise Undelivered("somebody else keeps replacing its document")

    def _found(self, version: int | None) -> None:
        """Only an answer to a PUT makes it ours: one that fails must not leave it taken for that at the next visit."""
        self._held_version, self._held_digest = version, ""

    def _note_replaced(self, how: str) -> None:
        self._replaced, self._replaced_how = self._replaced + 1, how

    def _replacements(self) -> tuple[Remark, ...]:
        return (Remark(RemarkKind.REPLACED, self.name, self._replaced_how),) if self._replaced >= _MANY_REPLACED else ()

    def _replace(self, parcel: DocumentParcel, over: int | Author) -> tuple[Remark, ...]:
        loaded = self._client.loaded()
        if loaded is None or not (loaded.version == over if isinstance(over, int) else self._is_by(over)):
            return ()
        try:
            return self._put(parcel, loaded.version + 1)
        except VersionConflict:  # somebody else was quicker
            return ()

    def _is_by(self, author: Author) -> bool:
        try:
            written = _decode_written(self._client.document() or b"{}")
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # whatever it is, it is not ours
            return False
        names = {each.gateway for each in written.listeners}
        times = {each.created_at for each in written.listeners if each.created_at}
        return names == {author.gateway} and times == {author.created_at}

    def _put(self, parcel: DocumentParcel, version: int) -> tuple[Remark, ...]:
        answer = self._client.put(b'{"version":%d' % version, *parcel.tail)
        self._held_digest = parcel.digest
        self._held_version = answer.version
        self._on_version(answer.version)
        return tuple(Remark(RemarkKind.PORT, each.path, each.message) for each in answer.problems)
