"""Threads that tests leave behind are ended where they would complain in the logs of others."""

import threading

from acstor.origin.memory import MemoryOrigin
from acstor.origin.replicated.driver import ReplicatedOrigin
from acstor.origin.replicated.members import MemberAddress
from acstor.origin.replicated.membership import Membership
from tests.conftest import CHANGE_LOG_THREAD

LEFT: list[threading.Thread] = []


def change_logs() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == CHANGE_LOG_THREAD]


def test_first_test_leaves_an_origin_open() -> None:
    earlier = change_logs()
    stores = {"home": MemoryOrigin(), "near": MemoryOrigin()}
    Membership("home", stores).create()
    origin = ReplicatedOrigin([MemberAddress(name, name) for name in stores], stores.__getitem__)
    origin.put_if_absent("packs/" + "ab" * 32, [b"chunks"])
    LEFT.extend(one for one in change_logs() if one not in earlier)
    assert len(LEFT) == 1


def test_thread_of_its_change_log_has_ended() -> None:
    assert not any(one.is_alive() for one in LEFT)
