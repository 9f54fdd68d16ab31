"""A store each of whose calls ends in time, its opening too: for who has one and waits for it.

Processes that have several members ask another one (:mod:`..objects`); a command that cannot go on
without a store says that it does not answer.
"""

from collections.abc import Callable

from acstor import abandoned_call, exception
from acstor.origin import base
from acstor.origin.opening import open_driver
from acstor.origin.pair import OriginPair
from acstor.origin.replicated.member import Member
from acstor.origin.replicated.member_calls.objects import MemberObjects
from acstor.origin.replicated.member_calls.refs import MemberRefs

ANSWER_SECONDS = 15.0
"""Longest time for which a store is waited for, without what a large object takes on top."""


class MemberOrigin(OriginPair):
    """The store of a member, as both interfaces; what only its operators ask goes to it as it is.

    :param member: whose it is; closed with this.
    """

    def __init__(self, member: Member) -> None:
        super().__init__(MemberObjects(member), MemberRefs(member))
        self.member = member

    def close(self) -> None:
        """Close the store; a call that hangs is left to itself."""
        self.member.close()


def open_in_time(
    name: str,
    url: str,
    *,
    open_store: Callable[[str], base.Origin] = open_driver,
    seconds: float = ANSWER_SECONDS,
    call_seconds: float = ANSWER_SECONDS,
) -> MemberOrigin:
    """Open the store of a member, on a thread that may hang with it.

    :param seconds: longest time of the opening.
    :param call_seconds: longest time of each call afterwards.
    :raises DeadlineError: when it does not answer in time.
    :raises AcstorError: when it cannot be opened.
    """
    try:
        store = abandoned_call.within(seconds, lambda: open_store(url))
    except TimeoutError as error:
        raise exception.DeadlineError(
            f"member {name} did not answer within {seconds:g} s",
            hint="check its store and that its file system is mounted",
        ) from error
    return MemberOrigin(Member(name, store, call_seconds))
