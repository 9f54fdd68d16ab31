"""The check of histories: what it must find, or no test that uses it says anything."""

import pytest

from tests.unit.origin.ref_history import History, HistoryError, Outcome, Read, Swap

YES, NO, UNKNOWN = Outcome.YES, Outcome.NO, Outcome.UNKNOWN


def history(*calls: Swap | Read) -> History:
    made = History()
    made.swaps = [call for call in calls if isinstance(call, Swap)]
    made.reads = [call for call in calls if isinstance(call, Read)]
    return made


def test_history_of_one_ref_is_accepted() -> None:
    history(
        Read(0, 1, None),
        Swap(2, 5, None, "a", YES),
        Swap(3, 6, None, "b", NO),
        Read(4, 7, None),
        Swap(8, 9, "a", "c", UNKNOWN),
        Read(8, 10, "a"),
        Read(11, 12, "c"),
        Swap(13, 16, "c", None, YES),
        Swap(14, 18, None, "d", YES),
        Read(15, 17, "c"),
        Swap(19, 20, "d", None, UNKNOWN),
        Swap(21, 22, None, "e", YES),
    ).check()


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        ([Read(0, 1, "a")], "nobody wrote"),
        ([Swap(0, 1, None, "a", NO), Read(2, 3, "a")], "refused"),
        ([Read(0, 1, "a"), Swap(2, 3, None, "a", YES)], "before it was written"),
        (
            [Swap(0, 1, None, "a", YES), Swap(2, 5, "a", "b", YES), Swap(3, 4, "a", "c", YES)],
            "two changed a",
        ),
        (
            [Swap(0, 1, None, "a", YES), Swap(2, 3, "a", "b", YES), Read(4, 5, "a")],
            "state 0 was seen after state 1",
        ),
        (
            [
                Swap(0, 1, None, "a", YES),
                Swap(2, 3, "a", "b", UNKNOWN),
                Read(4, 5, "b"),
                Read(6, 7, "a"),
            ],
            "state 0 was seen after state 1",
        ),
        (
            [Swap(0, 1, None, "a", YES), Swap(2, 3, "a", None, YES), Read(4, 5, "a")],
            "went on",
        ),
        (
            [Swap(0, 1, None, "a", YES), Swap(2, 3, None, "b", YES), Read(4, 5, "b")],
            "made over others",
        ),
        (
            [Swap(0, 1, None, "a", YES), Read(2, 3, None), Read(4, 5, "a")],
            "no ref in the life of a",
        ),
        (
            [
                Swap(0, 1, None, "a", YES),
                Swap(2, 3, "a", None, UNKNOWN),
                Swap(4, 5, None, "b", YES),
                Read(6, 7, "a"),
                Swap(8, 9, "b", None, UNKNOWN),
                Read(8, 9, "b"),
            ],
            "by turns",
        ),
    ],
)  # fmt: skip
def test_history_of_no_ref_is_found_out(calls: list[Swap | Read], message: str) -> None:
    with pytest.raises(HistoryError, match=message):
        history(*calls).check()
