"""Messages of version 1.5 about servers that move: what they read is told, and brought.

Arguments come from a wire: every one is checked before anything is done, and what is wrong is
answered as an error of kind ``invalid``.
"""

import logging
from typing import Any, Protocol

from acstor import exception
from acstor.control.chunk_set import CHUNK_COUNT_MAX, ChunkSet
from acstor.control.client import AdminClient
from acstor.control.hand_over import HandOverRequest, checked_id
from acstor.preload.request import checked_image
from acstor.preload.warm_set import WarmSet
from acstor.rpc.agent_server import HAND_OVER_VERSION, as_response, make_target
from acstor.untrusted_json import whole

LOG = logging.getLogger(__name__)


class Transfers(Protocol):
    """Target of the messages: the reconciler of the agent."""

    def begin(self, request: HandOverRequest) -> bool: ...  # noqa: D102
    def cancel(self, instance: str) -> bool: ...  # noqa: D102


class HandOverEndpoint:
    """Answers as ``doc/source/reference/protocols/agent-rpc.rst`` describes.

    :param host: name of this host.
    :param data_plane: of this host, for hosts that servers go to.
    """

    def __init__(self, host: str, transfers: Transfers, data_plane: AdminClient) -> None:
        self.target = make_target(HAND_OVER_VERSION)
        self._host = host
        self._transfers = transfers
        self._data_plane = data_plane

    def hand_over_start(self, context: dict[str, Any], **arguments: object) -> dict[str, object]:
        """Bring what a server reads that comes to this host."""

        def act() -> object:
            request = HandOverRequest.from_arguments(arguments)
            return {"accepted": self._transfers.begin(request)}

        return as_response(self._host, act)

    def hand_over_stop(self, context: dict[str, Any], **arguments: object) -> dict[str, object]:
        """Give up what is brought for a server that does not come."""

        def act() -> object:
            _check_names(arguments, "instance")
            return {
                "known": self._transfers.cancel(
                    checked_id(arguments.get("instance"), "an instance")
                )
            }

        return as_response(self._host, act)

    def hand_over_read(self, context: dict[str, Any], **arguments: object) -> dict[str, object]:
        """Tell the warm set of an image."""

        def act() -> object:
            _check_names(arguments, "image")
            return read_warm_set(
                self._data_plane, checked_image(arguments.get("image"))
            ).to_answer()

        return as_response(self._host, act)


def read_warm_set(data_plane: AdminClient, image: str) -> WarmSet:
    """Return the warm set of an image on this host.

    :raises NotFoundError: when the image is not attached.
    :raises UnavailableError: when the data plane does not answer.
    """
    told = data_plane.call("workingset.read", image=image)
    count, read = _decoded(told)
    held = ChunkSet(count)
    try:
        found_count, found = _decoded(data_plane.call("image.held", image=image))
        held = found if found_count == count else held
    except exception.UnavailableError:
        raise
    except exception.AcstorError as error:  # a data plane of an older release
        LOG.info("image %s: %s", image, exception.one_line(error))
    return WarmSet(image, count, read, held)


def _decoded(told: dict[str, Any]) -> tuple[int, ChunkSet]:
    count = whole(told["chunk_count"], "chunk_count", 0, CHUNK_COUNT_MAX)
    return count, ChunkSet.decode(told["bitmap"], count)


def _check_names(arguments: dict[str, object], known: str) -> None:
    for name in sorted(arguments.keys() - {known}):
        raise exception.InvalidError(f"there is no argument {name[:100]!r}")
