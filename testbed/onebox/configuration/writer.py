"""Configuration files that oslo.config reads, out of options by group."""

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Self

#: Options by group. A sequence is an option that is given several times.
Configuration = Mapping[str, Mapping[str, str | Sequence[str]]]


@dataclasses.dataclass(frozen=True)
class Override:
    """One option of one configuration file, put in the place of ours.

    :param file: name of the file without its suffix, for instance ``nova-compute``.
    """

    file: str
    group: str
    option: str
    value: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``FILE:GROUP.OPTION=VALUE``.

        :raises ValueError: when it is something else.
        """
        name, equals, value = text.partition("=")
        file, colon, path = name.partition(":")
        group, dot, option = path.rpartition(".")
        if not (equals and colon and dot and file and group and option) or "\n" in value:
            raise ValueError(f"{text!r} is not FILE:GROUP.OPTION=VALUE")
        return cls(file, group, option, value)


def render(configuration: Configuration) -> str:
    """Return the text of a configuration file."""
    lines: list[str] = []
    for group, options in configuration.items():
        lines.append(f"[{group}]")
        for option, value in options.items():
            values = [value] if isinstance(value, str) else value
            lines += [f"{option} = {each}" for each in values]
        lines.append("")
    return "\n".join(lines)


def write(path: pathlib.Path, text: str, mode: int = 0o644) -> bool:
    """Write a file, atomically; the folder is made where it is missing.

    Returns whether it held something else before.

    A file that is mounted somewhere cannot be replaced, so it is rewritten in place when it holds
    something else.
    """
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    if path.exists():
        if path.read_text() == text:
            return False
        path.write_text(text)
        return True
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text)
    fresh.chmod(mode)
    os.replace(fresh, path)
    return False
