"""Choice of the configuration files that one program reads.

Beside a file with the settings of a machine, ``secrets.conf`` may hold those that are passwords. It
is read where the user who runs the program may read it, and it is his or root's. Root's programs
and the agent read it; the data plane, which guests, peers and the origin reach, does not.
"""

import os
import stat
from collections.abc import Sequence

from oslo_config import cfg

DEFAULT_FILE = "/etc/acstor/acstor.conf"
SECRETS_NAME = "secrets.conf"
"""Name of the file with passwords, in the directory of :data:`DEFAULT_FILE`."""
_OPTION = "--config-file"


def with_secrets(arguments: Sequence[str]) -> list[str]:
    """Return arguments that name every file to read.

    :param arguments: of a command line. Where they have no ``--config-file``, :data:`DEFAULT_FILE`
        is read if it exists.
    """
    end, given = _given(arguments)
    named = [] if given or not os.access(DEFAULT_FILE, os.R_OK) else [DEFAULT_FILE]
    for path in secrets_files(given or [DEFAULT_FILE]):
        if path not in given and _is_to_be_read(path):
            named.append(path)
    # Behind the files that are given: of two that say the same, the later one wins. Before a
    # command, whose own parser does not know the option.
    added = [part for path in named for part in (_OPTION, path)]
    return [*arguments[:end], *added, *arguments[end:]]


def closed_secrets(arguments: Sequence[str]) -> list[str]:
    """Return the files of passwords that are there and that this process may not read."""
    files = _given(arguments)[1] or [DEFAULT_FILE]
    return [
        path
        for path in secrets_files(files)
        if os.path.isfile(path) and not os.access(path, os.R_OK)
    ]


def secrets_files(files: Sequence[str]) -> list[str]:
    """Return the paths, once each, at which passwords may be that belong to ``files``."""
    folders = dict.fromkeys(os.path.dirname(os.path.abspath(path)) for path in files)
    return [os.path.join(folder, SECRETS_NAME) for folder in folders]


def _is_to_be_read(path: str) -> bool:
    """Return whether a file that nobody named is there for this process.

    Beside a file in a directory of everybody's, such as /tmp, anybody may have put one.
    """
    try:
        found = os.stat(path)
    except OSError:
        return False
    is_ours = found.st_uid in {0, os.geteuid()} and not found.st_mode & stat.S_IWOTH
    return is_ours and stat.S_ISREG(found.st_mode) and os.access(path, os.R_OK)


def is_secrets_file(path: str) -> bool:
    """Return whether a file is one of passwords."""
    return os.path.basename(path) == SECRETS_NAME


def written(path: str) -> dict[str, dict[str, list[str]]]:
    """Return by group and name what a file says, every value as it is written.

    :raises oslo_config.cfg.ParseError: when the file is malformed.
    """
    groups: dict[str, dict[str, list[str]]] = {}
    cfg.ConfigParser(path, groups).parse()
    return groups


def _given(arguments: Sequence[str]) -> tuple[int, list[str]]:
    """Return where the last option that names a file ends, and the files."""
    end, files = 0, []
    for index, argument in enumerate(arguments):
        if argument == _OPTION and index + 1 < len(arguments):
            end = index + 2
            files.append(arguments[index + 1])
        elif argument.startswith(f"{_OPTION}="):
            end = index + 1
            files.append(argument.removeprefix(f"{_OPTION}="))
    return end, files
