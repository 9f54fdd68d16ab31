"""The methods of the data plane's sockets: operations of the table, bound to their targets."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from acstor.control import protocol
from acstor.control.operations import OPERATIONS, Door, Operation, Target
from acstor.control.parameters import ParameterError
from acstor.control.server import Method
from acstor.native import DataPlane, map_errors

LOG = logging.getLogger(__name__)

Action = Callable[[Mapping[str, Any]], object]


def methods(
    door: Door, targets: Mapping[Target, object], runtime: Callable[[], DataPlane]
) -> dict[str, Method]:
    """Return the methods of a socket by name, whose parameters are looked at before each call.

    :param targets: must have the methods that the operations name.
    :param runtime: returns the target of the operations that need nothing else.
    """
    return {
        operation.name: _checked(
            operation,
            _of_runtime(operation, runtime)
            if operation.target is Target.RUNTIME
            else _of_target(getattr(targets[operation.target], operation.method)),
        )
        for operation in OPERATIONS
        if door in operation.doors
    }


def _checked(operation: Operation, action: Action) -> Method:
    def method(given: Mapping[str, Any]) -> object:
        try:
            arguments = operation.checked(given)
        except ParameterError as error:
            raise protocol.ProtocolError(protocol.Code.INVALID_PARAMS, str(error)) from error
        return operation.answer(action(arguments))

    return method


def _of_target(method: Callable[..., object]) -> Action:
    return lambda arguments: method(*arguments.values())


def _of_runtime(operation: Operation, runtime: Callable[[], DataPlane]) -> Action:
    def action(arguments: Mapping[str, Any]) -> object:
        with map_errors(operation.subject.format(**arguments)):
            found: object = getattr(runtime(), operation.method)(*arguments.values())
        if operation.is_logged:
            LOG.info("%s: %s", operation.name, dict(arguments))
        return found

    return action
