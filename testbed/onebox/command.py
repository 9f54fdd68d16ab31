"""``acstor-onebox``: a real OpenStack with ACStor on this machine."""

import argparse
import dataclasses
import json
import logging
import os
import pathlib
import sys
import time
from collections.abc import Callable, Sequence

from acstor.exception import AcstorError
from testbed import interruption
from testbed.exception import TestbedError
from testbed.onebox import network
from testbed.onebox.configuration.acstor import Origin
from testbed.onebox.configuration.writer import Override
from testbed.onebox.directory import DEFAULT_PATH, OneBoxDirectory
from testbed.onebox.settings import Settings

_DESCRIPTION = """\
A real OpenStack with ACStor on this machine: a controller and compute hosts, each in namespaces
of its own, with Keystone, Glance, Placement, Nova, Cinder and Neutron out of PyPI. Needs root."""

Action = Callable[[OneBoxDirectory, argparse.Namespace], int]


def _override(text: str) -> Override:
    try:
        return Override.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/onebox",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--directory", type=pathlib.Path, metavar="DIR",
        default=os.environ.get("ACSTOR_ONEBOX", DEFAULT_PATH),
        help="where all of it is kept (default: $ACSTOR_ONEBOX, or %(default)s)",
    )  # fmt: skip
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_up_and_down(commands)
    _add_services(commands)
    _add_use(commands)
    return parser


def _add_up_and_down(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    up = commands.add_parser("up", help="bring everything up; what is up already is left as it is")
    up.add_argument("--hosts", type=int, metavar="N", help="compute hosts (default: 2)")
    up.add_argument(
        "--without-acstor", action="store_true", help="the same cloud without any ACStor service"
    )
    up.add_argument(
        "--tls", action=argparse.BooleanOptionalAction, help="certificates for the data planes"
    )
    up.add_argument(
        "--origin", type=Origin, choices=list(Origin),
        help="a folder that all hosts share (posix, the default), or a Ceph on the controller",
    )  # fmt: skip
    up.add_argument(
        "--option", action="append", type=_override, default=[],
        metavar="FILE:GROUP.OPTION=VALUE", help="see 'set'",
    )  # fmt: skip
    up.add_argument(
        "--wheel", type=pathlib.Path, metavar="FILE",
        help="install this wheel of ACStor (default: what is in the checkout, as it is)",
    )  # fmt: skip
    up.set_defaults(action=_up)
    install = commands.add_parser(
        "install", help="install what 'up' needs but for ACStor itself; nothing is brought up"
    )
    install.set_defaults(action=_install)
    down = commands.add_parser("down", help="end everything and remove it")
    down.add_argument(
        "--purge", action="store_true", help="remove also what is installed and cached"
    )
    down.set_defaults(action=_down)
    change = commands.add_parser(
        "set",
        help="change options of a configuration; services take them when they are restarted",
        description="FILE is keystone, glance, placement, nova, nova-compute, cinder, neutron, "
        "neutron-agent, acstor (both of compute hosts) or acstor-controller. Without options: "
        "print those that are set.",
    )
    change.add_argument(
        "option", nargs="*", type=_override, metavar="FILE:GROUP.OPTION=VALUE",
        help="for instance nova-compute:image_cache.manager_interval=30",
    )  # fmt: skip
    change.add_argument(
        "--restart", action="store_true", help="restart the services of the changed files"
    )
    change.set_defaults(action=_set)


def _add_services(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    status = commands.add_parser("status", help="show the services; exit status 1 if one is not up")
    status.add_argument("-f", "--format", choices=("table", "json"), default="table")
    status.set_defaults(action=_status)
    for name, action, text in (
        ("start", _start, "start a service, and wait until it is ready"),
        ("stop", _stop, "stop a service"),
        ("restart", _restart, "stop a service, then start it"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("service", help="as 'status' names it, or 'acstor' for all of ACStor")
        command.add_argument("--host", help="only there (default: on every host that has it)")
        if name != "start":
            command.add_argument(
                "--kill", action="store_true", help="with SIGKILL, as a crash would end it"
            )
        command.set_defaults(action=action)


def _add_use(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    execute = commands.add_parser(
        "exec", help="run a command on a host, with the administrator's credentials",
        usage="tools/onebox exec [--host NAME] [--as USER] [--project PROJECT] COMMAND [ARG ...]",
    )  # fmt: skip
    execute.add_argument("--host", default=network.CONTROLLER, help="(default: %(default)s)")
    execute.add_argument("--as", dest="user", default="admin", metavar="USER")
    execute.add_argument("--project", default="admin")
    execute.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    execute.set_defaults(action=_exec)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _up(directory: OneBoxDirectory, arguments: argparse.Namespace) -> int:
    from testbed.onebox.bring_up import BringUp

    started = time.monotonic()
    try:
        settings = Settings.load(directory)
    except TestbedError:
        settings = Settings()
    settings = settings.with_overrides(arguments.option)
    settings = dataclasses.replace(settings, with_acstor=not arguments.without_acstor)
    if arguments.hosts is not None:
        settings = dataclasses.replace(settings, compute_hosts=arguments.hosts)
    if arguments.tls is not None:
        settings = dataclasses.replace(settings, tls=arguments.tls)
    if arguments.origin is not None:
        settings = settings.with_origin(arguments.origin, directory)
    network.compute_names(settings.compute_hosts)
    with directory.locked():
        BringUp(directory, settings, _report_since(started), arguments.wheel).run()
    _say(f"up after {time.monotonic() - started:.0f} s; logs are in {directory.logs}")
    return 0


def _report_since(started: float) -> Callable[[str, float], None]:
    def report(name: str, seconds: float) -> None:
        _say(f"{time.monotonic() - started:6.1f} s  {name} ({seconds:.1f} s)")

    return report


def _install(directory: OneBoxDirectory, arguments: argparse.Namespace) -> int:
    from testbed.onebox.bring_up import BringUp

    with directory.locked():
        BringUp(directory, Settings(), _report_since(time.monotonic())).install()
    return 0


def _down(directory: OneBoxDirectory, arguments: argparse.Namespace) -> int:
    from testbed.onebox import teardown

    if not directory.path.is_dir():
        return 0
    with directory.locked(), interruption.held_back():
        teardown.take_down(directory, purge=arguments.purge)
    return 0


def _set(directory: OneBoxDirectory, arguments: argparse.Namespace) -> int:
    from testbed.onebox import choice
    from testbed.onebox.configuration import files

    Settings.load(directory)
    with directory.locked():
        settings = Settings.load(directory).with_overrides(arguments.option)
        settings.save(directory)
        changed = files.write_all(directory, settings)
        if arguments.restart:
            choice.restart_configured(directory, changed)
    for kept in settings.overrides:
        _say(f"{kept.file}:{kept.group}.{kept.option}={kept.value}")
    return 0


def _status(directory: OneBoxDirectory, arguments: argparse.Namespace) -> int:
    from testbed.onebox import bring_up, services, status

    settings = Settings.load(directory)
    hosts = bring_up.hosts_of(directory, settings)
    wanted = services.all_services(
        directory, settings.compute_names, with_acstor=settings.with_acstor,
        with_ceph=settings.with_ceph,
    )  # fmt: skip
    found = status.service_statuses(directory, hosts, wanted)
    if arguments.format == "json":
        _say(json.dumps([dataclasses.asdict(entry) for entry in found], indent=2))
    else:
        _say(status.table(found))
    return 0 if all(entry.state is status.ServiceState.RUNNING for entry in found) else 1


def _start(directory: OneBoxDirectory, arguments: argparse.Namespace) -> int:
    from testbed.onebox import choice

    control, chosen = choice.choose(directory, arguments.service, arguments.host)
    for service in chosen:
        control.start(service)
    return 0


def _stop(directory: OneBoxDirectory, arguments: argparse.Namespace) -> int:
    from testbed.onebox import choice

    control, chosen = choice.choose(directory, arguments.service, arguments.host)
    for service in reversed(chosen):
        control.stop(service, kill=arguments.kill)
    return 0


def _restart(directory: OneBoxDirectory, arguments: argparse.Namespace) -> int:
    _stop(directory, arguments)
    return _start(directory, arguments)


def _exec(directory: OneBoxDirectory, arguments: argparse.Namespace) -> int:
    from testbed.onebox import bring_up, services
    from testbed.onebox.configuration import endpoints

    hosts = bring_up.hosts_of(directory, Settings.load(directory))
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command or arguments.host not in hosts:
        raise TestbedError(
            "name a command to run" if not command else f"there is no host {arguments.host}",
            hint=f"the hosts are {', '.join(hosts)}",
        )
    environment = {
        **os.environ,
        **services.base_environment(directory),
        **endpoints.person(),
        "OS_USERNAME": arguments.user,
        "OS_PROJECT_NAME": arguments.project,
        "OS_COMPUTE_API_VERSION": "2.latest",
    }
    argv = hosts[arguments.host].enter(["env", "-C", os.getcwd(), *command])
    os.execve(argv[0], argv, environment)  # noqa: S606 - there is no shell to start it with


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status."""
    parsed = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="tools/onebox: %(levelname)s: %(message)s")
    action: Action = parsed.action
    try:
        if os.geteuid() != 0:
            raise TestbedError(
                "the one-box makes namespaces and mounts, which needs root",
                hint="run it as root, for instance with sudo",
            )
        directory = OneBoxDirectory(pathlib.Path(parsed.directory))
        with interruption.raised():
            return action(directory, parsed)
    except interruption.Interrupted as interrupted:
        sys.stderr.write(f"tools/onebox: {interrupted}; tools/onebox down removes what was made\n")
        return interrupted.exit_status
    except AcstorError as error:
        hint = error.hint
        if hint == TestbedError.default_hint:
            hint = f"look at the logs below {parsed.directory}/log, then run the command again"
        sys.stderr.write(f"tools/onebox: error: {error.message}\n{hint}\n")
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main())
