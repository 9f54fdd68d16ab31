"""Messages of versions 1.2 and 1.4, by which the volume service acts on volumes of this host.

Every message is one operation of the data plane (:mod:`acstor.control.operations`). Arguments come
from a wire: every one is checked before the data plane is asked, and what is wrong is answered as
an error of kind ``invalid``.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from acstor import exception
from acstor.control.operations import BY_MESSAGE, Operation
from acstor.control.parameters import ParameterError
from acstor.rpc.agent_server import FREEZE_VERSION, as_response, make_target

ANSWER_MARGIN = 5.0
"""Seconds that the data plane gets beyond what an operation itself may take."""

Message = Callable[..., dict[str, object]]


class DataPlaneCalls(Protocol):
    """Target of the messages: the admin socket's client."""

    def call(self, method: str, /, *, call_timeout: float | None = None, **params: object) -> Any:
        """Call a method of the data plane."""


class VolumeEndpoint:
    """Answers as ``doc/source/reference/protocols/agent-rpc.rst`` describes.

    It has a method for each operation that the table opens to the message bus.

    :param host: name of this host.
    """

    def __init__(self, host: str, data_plane: DataPlaneCalls) -> None:
        self.target = make_target(FREEZE_VERSION)
        self._host = host
        self._data_plane = data_plane
        for message, operation in BY_MESSAGE.items():
            setattr(self, message, partial(self._answer, operation))

    def _answer(
        self, operation: Operation, context: dict[str, Any], **arguments: object
    ) -> dict[str, object]:
        def act() -> object:
            try:
                values = operation.checked(arguments)
            except ParameterError as error:
                raise exception.InvalidError(str(error)) from error
            return self._data_plane.call(
                operation.name,
                call_timeout=operation.timeout + ANSWER_MARGIN,
                # A data plane of the release before knows no parameter that may be left out.
                **{name: value for name, value in values.items() if name in arguments},
            )

        return as_response(self._host, act)
