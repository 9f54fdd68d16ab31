import pytest
from hypothesis import given
from hypothesis import strategies as st

from acstor.conf.types import ByteSize, Choices, PowerOfTwo, format_size


@pytest.mark.parametrize(
    ("text", "expected"),
    [("4096", 4096), ("1K", 1024), ("1kB", 1000), ("1.5 GiB", 3 << 29), ("2tib", 2 << 40), (7, 7)],
)
def test_sizes(text: object, expected: int) -> None:
    assert ByteSize()(text) == expected


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1 XiB", "1e3", "0x10", "1,5G", "٣"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="size"):
        ByteSize()(text)


@given(st.integers(min_value=0, max_value=1 << 60))
def test_formatted_size_reads_back(size_bytes: int) -> None:
    assert ByteSize()(format_size(size_bytes)) == size_bytes


@pytest.mark.parametrize("value", ["0", "3", "-4", "48"])
def test_what_is_no_power_of_two_is_refused(value: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the range's text is oslo.config's
        PowerOfTwo(min=1, max=64)(value)


def test_choices_are_one_or_more_of_the_words() -> None:
    words = Choices(["public", "private"])
    assert words("public") == ["public"]
    assert words(" private ,public") == ["private", "public"]
    for text in ("", "secret", "public,secret", ","):
        with pytest.raises(ValueError):  # noqa: PT011 - the range's text is oslo.config's
            words(text)
