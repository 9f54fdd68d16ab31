"""Reading the configuration, and saying clearly what is wrong with it.

oslo.config checks a value when it is first used; a host process would then fail long after its
start, and without the group or the range. :func:`load` looks at every value at once.
"""

import logging
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

from oslo_config import cfg, types

from acstor import exception
from acstor.conf import backend_urls, config_files, opts, services
from acstor.conf.types import ByteSize, Choices, PowerOfTwo

LOG = logging.getLogger(__name__)

DEFAULT_FILE = config_files.DEFAULT_FILE
_WITH_SECRETS = frozenset(
    {"acstor-agent", "acstor-policy", "acstor-registrar", "acstor-worker", "acstor-api"}
)
"""Programs that need what a file of passwords may have."""
SOCKET_PATH_MAX = 107
"""Longest path of a unix socket on Linux, bytes (unix(7))."""
_SOCKET_NAME_LENGTH = len("/00000000-0000-0000-0000-000000000000.sock")


def load(
    program: str,
    arguments: Sequence[str],
    register_more: Callable[[cfg.ConfigOpts], None] | None = None,
) -> cfg.ConfigOpts:
    """Return the configuration of one program, every value of it valid.

    :param program: name for the usage text.
    :param arguments: of the command line; ``--config-file`` may be given several times, later
        files win. Without it :data:`DEFAULT_FILE` is read where it exists. Passwords are read
        too, where they are in a file of their own (:mod:`acstor.conf.config_files`).
    :param register_more: registers options of libraries (oslo.log) before anything is read.
    :raises ConfigurationError: for the first wrong value: names group, option, value and what is
        allowed; or for a file that cannot be read.
    """
    _require_secrets(program, arguments)
    conf = cfg.ConfigOpts()
    opts.register_all(conf)
    if register_more is not None:
        register_more(conf)
    try:
        conf(
            config_files.with_secrets(arguments),
            project="acstor",
            prog=program,
            default_config_files=[],
            default_config_dirs=[],
        )
    except cfg.ConfigFilesNotFoundError as error:
        raise exception.ConfigurationError(
            f"configuration file {', '.join(error.config_files)} cannot be read",
            hint="give an existing file with --config-file",
        ) from error
    except cfg.ConfigFilesPermissionDeniedError as error:
        raise exception.ConfigurationError(
            f"configuration file {', '.join(error.config_files)} may not be read by this user",
            hint="run as a user who may read it",
        ) from error
    except (OSError, UnicodeError) as error:
        raise exception.ConfigurationError(
            f"a configuration file is unreadable: {error}"
        ) from error
    except cfg.ConfigFileParseError as error:
        reason = exception.one_line(error)
        if config_files.is_secrets_file(str(error.config_file)):
            reason = f"{error.config_file} (its lines are not shown)"
        raise exception.ConfigurationError(f"configuration file is malformed: {reason}") from error
    except cfg.ConfigSourceValueError as error:
        reason = exception.one_line(error)
        raise exception.ConfigurationError(f"configuration: {reason}") from error
    check(conf)
    return conf


def _require_secrets(program: str, arguments: Sequence[str]) -> None:
    """Refuse to go on without passwords that are there, but for others.

    With defaults in their place a service would find its peers elsewhere, or none.
    """
    if program not in _WITH_SECRETS:
        return
    for path in config_files.closed_secrets(arguments):
        raise exception.ConfigurationError(
            f"{path} may not be read by this user",
            hint=f"where {program} runs, leave in acstor.conf what that file has for it",
        )


def check(conf: cfg.ConfigOpts) -> None:
    """Look at every value, then at what values must hold together.

    :raises ConfigurationError: for the first wrong one.
    """
    for group, options in opts.list_opts():
        for option in options:
            _check_value(conf, group, option)
    for rule in (
        _check_paths,
        _check_deadlines,
        _check_tls,
        _check_metrics,
        _check_heartbeat,
        _check_backend,
    ):
        rule(conf)


def describe_allowed(kind: Any) -> str:
    """Return in words which values an option's type allows."""
    text = "a valid value"
    match kind:
        case ByteSize():
            text = f"a size {kind.describe()}, such as 20GiB"
        case Choices():
            text = kind.describe()
        case types.Boolean():
            text = "true or false"
        case types.Number():
            noun = "a number"
            if isinstance(kind, PowerOfTwo):
                noun = "a power of two"
            elif isinstance(kind, types.Integer):
                noun = "a whole number"
            text = f"{noun} from {kind.min:g} to {kind.max:g}" if kind.max is not None else noun
            if isinstance(kind, types.Integer) and kind.max is not None:
                text = f"{noun} from {kind.min} to {kind.max}"
        case types.HostAddress():
            text = "an IP address or a host name"
        case types.String(choices=choices) if choices:
            text = "one of " + ", ".join(str(choice) for choice in choices)
        case types.String(regex=regex) if regex is not None:
            text = f"text that matches {regex.pattern.removesuffix(chr(92) + 'Z')}"
    return text


def _check_value(conf: cfg.ConfigOpts, group: str, option: cfg.Opt) -> None:
    try:
        value = conf[option.dest] if group == "DEFAULT" else conf[group][option.dest]
    except (cfg.ConfigSourceValueError, ValueError) as error:
        raise _wrong(conf, group, option) from error
    except (cfg.TemplateSubstitutionError, cfg.NoSuchOptError) as error:
        given, location = _given_value(conf, group, option)
        raise exception.ConfigurationError(
            f"[{group}] {option.name} = {given!r} refers to an option that does not exist{location}"
        ) from error
    if isinstance(value, float) and not math.isfinite(value):
        raise _wrong(conf, group, option)


def _wrong(conf: cfg.ConfigOpts, group: str, option: cfg.Opt) -> exception.ConfigurationError:
    given, location = _given_value(conf, group, option)
    return exception.ConfigurationError(
        f"[{group}] {option.name} = {given!r} is not {describe_allowed(option.type)}{location}"
    )


def _given_value(conf: cfg.ConfigOpts, group: str, option: cfg.Opt) -> tuple[str, str]:
    """Return the text that the operator wrote, and where; of a secret only where."""
    given, location = _written_value(conf, group, option)
    return ("***" if option.secret else given), location


def _written_value(conf: cfg.ConfigOpts, group: str, option: cfg.Opt) -> tuple[str, str]:
    for path in reversed(conf.config_file or []):
        written = _sections(path).get(group, {})
        for name in (option.name, option.dest):
            if name in written:
                return str(written[name][-1]), f" ({path})"
    variable = f"OS_{group}__{option.dest}".upper()
    return os.environ.get(variable, str(option.default)), " (not from a configuration file)"


def _sections(path: str) -> dict[str, dict[str, list[str]]]:
    sections: dict[str, dict[str, list[str]]] = {}
    cfg.ConfigParser(path, sections).parse()
    return sections


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise exception.ConfigurationError(message)


def _check_paths(conf: cfg.ConfigOpts) -> None:
    for name, path in (
        ("[DEFAULT] state_path", conf.state_path),
        ("[store] path", conf.store.path),
        ("[dataplane] mount_point", conf.dataplane.mount_point),
        ("[dataplane] admin_socket", conf.dataplane.admin_socket),
        ("[dataplane] holder_socket", conf.dataplane.holder_socket),
        ("[dataplane] mount_socket", conf.dataplane.mount_socket),
        ("[volumes] directory", conf.volumes.directory),
        ("[volumes] socket_directory", conf.volumes.socket_directory),
        ("[volumes] control_socket", conf.volumes.control_socket),
        *(("[image_links] nova_config_file", path) for path in conf.image_links.nova_config_file),
        ("[registrar] spool_path", conf.registrar.spool_path),
        ("[glance] filesystem_store_datadir", conf.glance.filesystem_store_datadir or "/"),
    ):
        _require(os.path.isabs(path), f"{name} = {path!r} is not an absolute path")
    for group, name in (
        ("dataplane", "admin_socket"),
        ("dataplane", "holder_socket"),
        ("dataplane", "mount_socket"),
        ("volumes", "control_socket"),
    ):
        path = conf[group][name]
        _require(
            len(os.fsencode(path)) <= SOCKET_PATH_MAX,
            f"[{group}] {name} = {path!r} is longer than {SOCKET_PATH_MAX} bytes",
        )
    path = conf.volumes.socket_directory
    longest = SOCKET_PATH_MAX - _SOCKET_NAME_LENGTH
    _require(
        len(os.fsencode(path)) <= longest,
        f"[volumes] socket_directory = {path!r} is longer than {longest} bytes",
    )


def _check_deadlines(conf: cfg.ConfigOpts) -> None:
    whole = conf.readpath.read_deadline
    for name in ("origin_deadline", "peer_deadline"):
        part = conf.readpath[name]
        _require(
            part <= whole,
            f"[readpath] {name} = {part:g} is more than read_deadline = {whole:g}",
        )


def _check_tls(conf: cfg.ConfigOpts) -> None:
    if not conf.peer.tls_enabled:
        return
    for name in ("ca_file", "cert_file", "key_file"):
        path = conf.peer[name]
        _require(os.path.isabs(path), f"[peer] {name} = {path!r} is not an absolute path")
    path = conf.peer.crl_file
    _require(not path or os.path.isabs(path), f"[peer] crl_file = {path!r} is not an absolute path")


def _check_metrics(conf: cfg.ConfigOpts) -> None:
    for group in ("agent", "policy", "registrar", "worker"):
        options = conf[group]
        for name in ("metrics_key_file", "metrics_ca_file"):
            _require(
                not options[name] or bool(options.metrics_cert_file),
                f"[{group}] {name} = {options[name]!r} needs metrics_cert_file",
            )


def _check_heartbeat(conf: cfg.ConfigOpts) -> None:
    interval, timeout = conf.coordination.heartbeat_interval, conf.coordination.member_timeout
    _require(
        2 * interval <= timeout,
        f"[coordination] heartbeat_interval = {interval:g} is more than half of "
        f"member_timeout = {timeout}",
    )


def _check_backend(conf: cfg.ConfigOpts) -> None:
    backend_urls.split(conf.coordination.backend_url)


def is_written(conf: cfg.ConfigOpts, group: str, name: str) -> bool:
    """Return whether an option is given in a file or the environment, whoever registers it."""
    if f"OS_{group}__{name}".upper() in os.environ:
        return True
    return any(name in _sections(path).get(group, {}) for path in conf.config_file or [])


def warn_of_unknown(conf: cfg.ConfigOpts) -> list[str]:
    """Log a warning for each option in the files that no program knows; return their names.

    Only groups of ACStor are looked at: the file may hold options of libraries too.
    """
    known = {
        (group, name)
        for group, options in opts.list_opts()
        for option in options
        for name in (option.name, option.dest)
    }
    groups = ({group for group, _ in known} | set(services.GROUPS)) - {"DEFAULT"}
    unknown = []
    for path in conf.config_file or []:
        sections = _sections(path)
        for group in sorted(groups & sections.keys()):
            for name in sorted(sections[group]):
                if (group, name) not in known and not _is_of_keystoneauth(group, name):
                    unknown.append(f"[{group}] {name}")
                    LOG.warning("%s: there is no option [%s] %s; it is ignored", path, group, name)
    return unknown


def _is_of_keystoneauth(group: str, name: str) -> bool:
    """Return whether an option is one of keystoneauth's; loads it only where one may be."""
    return group in services.GROUPS and any(
        name in {option.name, option.dest, *(old.name for old in option.deprecated_opts)}
        for known_group, options in services.list_opts()
        if known_group == group
        for option in options
    )
