"""The methods of the data plane's sockets: operations of the table, bound to their targets."""

from collections.abc import Callable, Mapping
from typing import Any

from acstor.control import protocol
from acstor.control.operations import OPERATIONS, Door, Operation, Target
from acstor.control.parameters import ParameterError
from acstor.control.server import Method


def methods(door: Door, targets: Mapping[Target, object]) -> dict[str, Method]:
    """Return the methods of a socket by name, whose parameters are looked at before each call.

    :param targets: must have the methods that the operations name.
    """
    return {
        operation.name: _bound(operation, getattr(targets[operation.target], operation.method))
        for operation in OPERATIONS
        if door in operation.doors
    }


def _bound(operation: Operation, action: Callable[..., Any]) -> Method:
    def method(given: Mapping[str, Any]) -> object:
        try:
            arguments = operation.checked(given)
        except ParameterError as error:
            raise protocol.ProtocolError(protocol.Code.INVALID_PARAMS, str(error)) from error
        return operation.answer(action(*arguments.values()))

    return method
