"""The ``acstor`` program: finds the command, loads the configuration, reports errors."""

import argparse
import functools
import logging
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from cliff import app, commandmanager
from oslo_config import cfg

from acstor import exception, warning_filters
from acstor.conf import loading

COMMAND_NAMESPACE = "acstor.cli"
_PROGRAM = "acstor"
_EXIT_INTERRUPTED = 130

_DESCRIPTION = """\
Registers images, and shows what the hosts of an ACStor deployment do.

Start with 'acstor image register', then watch 'acstor top'. Every list and table can be had as
JSON with '-f json'."""


_FORMER_NAMES = {"catalogue": "registry", "ledger": "trace"}
"""First words of commands as the releases before called them, for one release more."""
_OPTIONS_WITH_VALUE = frozenset({"--config-file", "--log-file"})
"""Options before a command that a value follows."""


class Application(app.App):
    """The command line; commands find the configuration at ``self.app.conf``."""

    NAME = _PROGRAM
    LOG = logging.getLogger("acstor.cli.silent")
    """cliff reports errors here, without hint or exit status; :meth:`clean_up` does it instead."""

    def __init__(self, stdout: TextIO | None = None, stderr: TextIO | None = None) -> None:
        super().__init__(
            description=_DESCRIPTION,
            version=_release(),
            command_manager=commandmanager.CommandManager(COMMAND_NAMESPACE),
            stdout=stdout,
            stderr=stderr,
            deferred_help=True,  # else 'acstor host list --help' explains the program only
        )
        self._exit_status = 0

    @functools.cached_property
    def conf(self) -> cfg.ConfigOpts:
        """The configuration, read at first use.

        :raises ConfigurationError: see :func:`acstor.conf.loading.load`.
        """
        files = self.options.config_file
        return loading.load(_PROGRAM, [part for name in files for part in ("--config-file", name)])

    def build_option_parser(
        self, description: str | None, version: str | None, argparse_kwargs: Any = None
    ) -> argparse.ArgumentParser:
        """Add ``--config-file`` to cliff's own options."""
        parser: argparse.ArgumentParser = super().build_option_parser(
            description,
            version,
            {"formatter_class": argparse.RawDescriptionHelpFormatter, **(argparse_kwargs or {})},
        )
        parser.add_argument(
            "--config-file",
            action="append",
            default=[],
            metavar="FILE",
            help=f"configuration to read instead of {loading.DEFAULT_FILE}; may be repeated",
        )
        return parser

    def configure_logging(self) -> None:
        """Log warnings to stderr; with -v also information, with -vv details."""
        level = {0: logging.ERROR, 1: logging.WARNING, 2: logging.INFO}.get(
            self.options.verbose_level, logging.DEBUG
        )
        logging.basicConfig(
            level=level, format="acstor: %(levelname)s: %(message)s", stream=self.stderr
        )
        self.LOG.propagate = self.options.debug
        self.LOG.addHandler(logging.NullHandler())

    def run(self, argv: Sequence[str]) -> int:
        """Run one command; without any, print the help."""
        return int(super().run(self._with_present_names(argv) or ["--help"]))

    def _with_present_names(self, argv: Sequence[str]) -> list[str]:
        """Return the arguments with the command as it is called now."""
        words = list(argv)
        is_value = False
        for index, word in enumerate(words):
            if is_value or word.startswith("-"):
                is_value = not is_value and word in _OPTIONS_WITH_VALUE
            elif word in _FORMER_NAMES:
                words[index] = _FORMER_NAMES[word]
                text = f"acstor: 'acstor {word}' is called 'acstor {words[index]}' now"
                print(text, file=self.stderr)
                break
            elif word != "help":
                break
        return words

    def run_subcommand(self, argv: Sequence[str]) -> int:
        """Run a command; return the exit status of its error."""
        self._exit_status = 0
        result = int(super().run_subcommand(list(argv)) or 0)
        return self._exit_status or result

    def clean_up(self, cmd: object, result: int, err: BaseException | None) -> None:
        """Report an error in one line: what failed, what to do."""
        if isinstance(err, exception.AcstorError):
            self._exit_status = err.exit_status
        if err is not None and not isinstance(err, (BrokenPipeError, KeyboardInterrupt)):
            print(f"acstor: error: {describe(err)}", file=self.stderr)


def describe(error: BaseException) -> str:
    """Return what failed and what to do, as one line."""
    match error:
        case exception.AcstorError():
            text = f"{error.message}; {error.hint}"
        case OSError():
            name = f"{error.filename}: " if error.filename else ""
            text = f"{name}{error.strerror or error}"
        case _:
            text = f"{type(error).__name__}: {error} (--debug shows where)"
    return " ".join(text.split())


def _release() -> str:
    from acstor import version

    return version.release()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    if arguments is None:
        warning_filters.exclude_eventlet()
    try:
        return Application().run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED
