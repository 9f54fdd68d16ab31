"""A wrapper of any interface whose calls fail when they are told to."""

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(slots=True)
class CallFault:
    """One thing that goes wrong."""

    method: str
    error: Callable[[], BaseException]
    call: int = 1
    """The n-th call of the method, counted from 1."""
    is_answer_lost: bool = False
    """True: the call has its effect, then fails."""


class FaultyCalls:
    """Passes every call on, except where a fault hits.

    :param inner: does the work.
    :ivar calls: number of calls of each method.
    """

    def __init__(self, inner: object, *faults: CallFault) -> None:
        self._inner = inner
        self.faults = list(faults)
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls[name] += 1
            fault = self._fault(name)
            if fault is not None and not fault.is_answer_lost:
                raise fault.error()
            result = found(*arguments, **named)
            if fault is not None:
                raise fault.error()
            return result

        return call

    def _fault(self, method: str) -> CallFault | None:
        for fault in self.faults:
            if fault.method == method and fault.call == self.calls[method]:
                return fault
        return None
