"""Starting the preload of an image on one host, once, however often that is asked for."""

import enum
import uuid
from collections.abc import Sequence
from typing import Any, Protocol

from acstor import exception
from acstor.control.protocol import PreloadWhat
from acstor.preload import many_hosts
from acstor.preload.many_hosts import HostPreload
from acstor.preload.request import PreloadRequest
from acstor.preload.states import AdmittedPreloadState

_COMPLETE = frozenset({AdmittedPreloadState.DONE, AdmittedPreloadState.MISSED})


class Outcome(enum.StrEnum):
    """Result for one image on one host."""

    STARTED = "started"
    PRESENT = "present"
    """It is being preloaded, or is kept whole there, already."""
    NOT_SERVED = "not-served"
    """The host does not offer the image: it is Nova's alone."""
    REFUSED = "refused"
    """The host has no room or no time for it."""
    UNKNOWN_HOST = "unknown-host"
    """No agent listens under the host's name."""
    SILENT = "silent"
    """The host, or the broker, does not answer."""
    FAILED = "failed"


class Agents(Protocol):
    """Calls to agents; see :class:`acstor.rpc.agent_client.AgentClient`."""

    def call(self, host: str, method: str, **arguments: object) -> Any: ...  # noqa: D102


def start(agents: Agents, host: str, image: str, *, pin: bool) -> tuple[Outcome, str]:
    """Have a host preload an image whole; return the outcome and, where it failed, the reason.

    :param pin: whether to keep it; what is kept there already stays so in any case.
    """
    try:
        answer = agents.call(host, "preload_status", image=image)
        present = [each for each in many_hosts.told(host, answer) if each.image == image]
        if any(_is_enough(each, pin=pin) for each in present):
            return Outcome.PRESENT, ""
        request = PreloadRequest(image, PreloadWhat.FULL, pin=pin or _is_pinned(present))
        arguments = {**request.to_arguments(), "id": str(uuid.uuid4())}
        agents.call(host, "preload_start", **arguments)
    except exception.NotFoundError as error:
        return Outcome.NOT_SERVED, error.message
    except exception.DeadlineError as error:
        return Outcome.SILENT, error.message
    except exception.UnavailableError as error:
        return _unavailable(error)
    except (exception.ExhaustedError, exception.OverloadedError) as error:
        return Outcome.REFUSED, error.message
    except exception.InvalidError as error:
        return Outcome.REFUSED, error.message
    except exception.AcstorError as error:
        return Outcome.FAILED, error.message
    return Outcome.STARTED, ""


def _unavailable(error: exception.UnavailableError) -> tuple[Outcome, str]:
    is_unknown = error.message.startswith("no agent listens")
    return Outcome.UNKNOWN_HOST if is_unknown else Outcome.SILENT, error.message


def _is_enough(present: HostPreload, *, pin: bool) -> bool:
    """Return whether a preload that a host has leaves nothing to do."""
    if present.what != PreloadWhat.FULL:
        return False
    if not present.state.has_ended:
        return present.pin or not pin
    return present.pin and present.state in _COMPLETE


def _is_pinned(present: Sequence[HostPreload]) -> bool:
    return any(each.pin and each.state in _COMPLETE for each in present)
