"""Checks of what is written in the configuration files: known, and valid."""

from collections.abc import Iterator

from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Result

from acstor import exception
from acstor.checks.verdict import failure_of, success, warning
from acstor.conf import config_files, loading, opts, services

_LIBRARY_GROUPS = ("oslo_", "healthcheck")
"""Prefixes of the groups that libraries read out of the same files."""


def check_values(conf: cfg.ConfigOpts) -> Result:
    """Check that every value is one that the installed release takes."""
    try:
        loading.check(conf)
    except exception.ConfigurationError as error:
        return failure_of(error)
    return success(f"read {', '.join(conf.config_file or ['no file: all options have defaults'])}")


def check_names(conf: cfg.ConfigOpts) -> Result:
    """Check that the installed release knows every option, and not by a former name only."""
    unknown = loading.warn_of_unknown(conf) + list(_unknown_groups(conf))
    if unknown:
        return warning(
            f"not known to this release and therefore ignored: {', '.join(unknown)}; correct the "
            "spelling, or remove what an earlier release knew (see its release notes)"
        )
    former = list(_former_names(conf))
    if former:
        return warning(f"will be removed: {', '.join(former)}; write the new names")
    return success("every option that is written is known")


def _unknown_groups(conf: cfg.ConfigOpts) -> Iterator[str]:
    known = {group for group, _ in opts.list_opts()} | {"DEFAULT", *services.GROUPS}
    for group in sorted({group for group, _ in _written(conf)} - known):
        if not group.startswith(_LIBRARY_GROUPS):
            yield f"[{group}]"


def _former_names(conf: cfg.ConfigOpts) -> Iterator[str]:
    written = _written(conf)
    for group, options in opts.list_opts():
        for option in options:
            new = f"[{group}] {option.name}"
            for former in option.deprecated_opts:
                name = former.group or group, former.name or option.name
                if name in written:
                    yield f"[{name[0]}] {name[1]} (now {new})"
            if option.deprecated_for_removal and (group, option.name) in written:
                yield f"{new} ({option.deprecated_reason})"


def _written(conf: cfg.ConfigOpts) -> set[tuple[str, str]]:
    """Return group and name of every option in the files."""
    written: set[tuple[str, str]] = set()
    for path in conf.config_file or []:
        groups = config_files.written(path)
        written.update((group, name) for group, options in groups.items() for name in options)
    return written
