"""Messages of version 1.5 by which a command has this host discard what is revoked, and prove it.

Arguments come from a wire: every one is checked before anything is done, and what is wrong is
answered as an error of kind ``invalid``.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from acstor import exception
from acstor.preload.request import checked_image, is_whole
from acstor.repository.images.revocation import PAGES_MAX
from acstor.revocation.answers import PageAnswer
from acstor.rpc.agent_server import REVOCATION_VERSION, as_response, make_target


class Revoking(Protocol):
    """Target of the messages: the reconciler of the agent."""

    def drop(self, image_id: str, page: int | None) -> PageAnswer: ...  # noqa: D102
    def check(self, image_id: str, page: int | None) -> PageAnswer: ...  # noqa: D102


class RevocationEndpoint:
    """Answers as ``doc/source/reference/protocols/agent-rpc.rst`` describes.

    :param host: name of this host.
    """

    def __init__(self, host: str, revoking: Revoking) -> None:
        self.target = make_target(REVOCATION_VERSION)
        self._host = host
        self._revoking = revoking

    def revocation_drop(self, context: dict[str, Any], **arguments: object) -> dict[str, object]:
        """Discard the chunks of one page."""
        return self._answer(self._revoking.drop, arguments)

    def revocation_check(self, context: dict[str, Any], **arguments: object) -> dict[str, object]:
        """Count the chunks of one page that are here."""
        return self._answer(self._revoking.check, arguments)

    def _answer(
        self, method: Callable[[str, int | None], PageAnswer], arguments: Mapping[str, object]
    ) -> dict[str, object]:
        def act() -> object:
            for name in sorted(arguments.keys() - {"image", "page"}):
                raise exception.InvalidError(f"there is no argument {name[:100]!r}")
            image = checked_image(arguments.get("image"))
            return method(image, _checked_page(arguments.get("page"))).to_answer()

        return as_response(self._host, act)


def _checked_page(value: Any) -> int | None:
    if value is None:
        return None
    if not is_whole(value) or not 0 <= value < PAGES_MAX:
        raise exception.InvalidError(f"a page is a number below {PAGES_MAX}, not {value!r:.50}")
    return int(value)
