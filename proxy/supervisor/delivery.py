"""Hands deployments to one worker process: the changes of the document, and the sockets that the worker lacks.

Whatever could not be handed over, or did not arrive, is handed over by a later call. Not thread-safe.
"""

import os
import socket

from daemonkit.logs import get_logger
from proxy.control import MAX_DESCRIPTORS, Channel, FromWorker, TakeDocument, TakeSockets, sealed_file
from proxy.supervisor.deployment import Deployment
from proxy.supervisor.sockets import BACKLOG

log = get_logger(__name__)
quiet_log = log.every(10.0)


class Delivery:
    def __init__(self, channel: Channel[FromWorker], index: int) -> None:
        """`index` is the worker's index."""
        self._channel = channel
        self._index = index
        self._is_open = False
        self._given: Deployment | None = None
        """The last deployment handed to the process. None: it gets the next document as a whole."""
        self._is_given_whole = False
        self._sockets: dict[str, socket.socket] = {}
        """The sockets that the process has, by door."""

    def open(self) -> None:
        """The process accepts documents from now on; before this call, nothing is handed over."""
        self._is_open = True

    def hand_over(self, wanted: Deployment | None) -> None:
        """Send the process what has changed since the last deployment. Raises OSError if it accepts no messages.

        If the supervisor has no descriptor or memory for that, the worker keeps serving what it has.
        """
        before = self._given
        if not self._is_open or wanted is None or wanted is before:
            return
        try:
            descriptor = sealed_file("tunnelgw-proxy-document", wanted.since(before))
        except OSError as error:
            quiet_log.error("cannot hand the document to a worker, trying again", error=error, worker=self._index)
            return
        try:
            self._hand_over_sockets(wanted)
            self._given, self._is_given_whole = wanted, before is None
            since = 0 if before is None else before.generation
            self._channel.send(TakeDocument(wanted.generation, wanted.version, since), [descriptor])
        finally:
            os.close(descriptor)

    def hand_over_whole(self, wanted: Deployment | None) -> None:
        """The process does not serve the document that the change is based on: send it the whole document."""
        if not self._is_given_whole:
            self._given = None
            self.hand_over(wanted)

    def note_missed(self, doors: tuple[str, ...]) -> None:
        """A message, or the sockets of these doors, did not arrive. A retry follows later: now it would fail again."""
        self._given = None
        for door in doors:
            self._sockets.pop(door, None)

    def _hand_over_sockets(self, wanted: Deployment) -> None:
        sockets = {door: group[self._index] for door, group in wanted.sockets.items()}
        for sock in sockets.values():
            # New sockets from `ListeningSockets.withdraw` do not listen yet; for the others this changes nothing.
            sock.listen(BACKLOG)
        fresh = [door for door, sock in sockets.items() if self._sockets.get(door) is not sock]
        self._sockets = sockets
        for doors in _batches(fresh):
            self._channel.send(TakeSockets(doors), [sockets[door].fileno() for door in doors])


def _batches(doors: list[str]) -> list[tuple[str, ...]]:
    return [tuple(doors[start : start + MAX_DESCRIPTORS]) for start in range(0, len(doors), MAX_DESCRIPTORS)]
