"""Calls at which a worker is killed, so that each state that it may leave comes once.

What is killed after a call leaves what is killed before the next one leaves, unless something is
written between the two that is no call of the switch: to the tasks, the index or the origin. That
is two of three calls.
"""

from acstor.versions.database.tasks import Task
from tests.unit.versions.flows.cloud import Cloud


class WholeRun:
    """A run that nobody kills, and its calls.

    :param cloud: where the task is asked for, which nobody has taken yet.
    :ivar task: its end.
    """

    def __init__(self, cloud: Cloud) -> None:
        """Work until its end."""
        cloud.switch.arm(None)
        cloud.switch.observe = lambda: _besides_calls(cloud)
        self.task: Task = cloud.work()
        self._switch = cloud.switch
        self.names = list(cloud.switch.names)

    def calls(self, *, is_after: bool) -> list[int]:
        """Return the numbers of calls to kill at, from one.

        :param is_after: after the calls, where this is not the same as before the next ones.
        """
        every = range(1, self._switch.calls + 1)
        return [at for at in every if not is_after or self._is_state_of_its_own(at)]

    def _is_state_of_its_own(self, at: int) -> bool:
        observed = self._switch.observed
        if at not in observed or at + 1 not in observed:
            return True
        if self._switch.names[at] in self._switch.on_call:
            return True  # something happens there before the next call
        return observed[at][1] != observed[at + 1][0]


def _besides_calls(cloud: Cloud) -> object:
    """Return what differs as soon as anything was written, or time has passed."""
    origin = cloud.versions.repository.origin
    refs = {name: origin.get_ref(name) for name in origin.list_refs()}
    return cloud.database.writes, cloud.seconds, cloud.clock.now, set(origin.list()), refs
