"""Installation of a one-box: Debian packages and a virtual environment of its own."""

import base64
import configparser
import contextlib
import fcntl
import hashlib
import importlib.metadata
import logging
import os
import pathlib
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator

from acstor.checks.volumes import LIBVIRT_MIN
from testbed import exception, processes
from testbed.onebox.directory import OneBoxDirectory

LOG = logging.getLogger(__name__)

#: The root of the checkout that this module is part of.
CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
CONSTRAINTS = pathlib.Path(__file__).with_name("constraints.txt")
#: Changes when environments that are installed already must be made anew: from 2 on, scripts name
#: the interpreter of the environment itself and not one behind a link to it.
_LAYOUT = b"2"
_APT_TIMEOUT_S = 900.0
_PIP_TIMEOUT_S = 900.0


def install_packages() -> str:
    """Install the Debian packages that are missing or too old; return those, one a line.

    :raises TestbedError: outside of a checkout.
    :raises ToolFailedError: when apt fails; without root.
    """
    if not (CHECKOUT / "bindep.txt").is_file():
        raise exception.TestbedError(
            "the one-box needs a checkout of ACStor", hint="run tools/onebox of a checkout"
        )
    missing = _shell("missing_packages onebox")
    if missing:
        _shell("install_packages onebox")
    version = libvirt_version()
    if not volumes_reconnect(version):
        LOG.warning(
            "libvirt is %s: guests lose their volumes when a data plane restarts; from %s on they "
            "do not",
            version,
            ".".join(map(str, LIBVIRT_MIN)),
        )
    return missing


def _shell(command: str) -> str:
    """Run a function of ``tools/environment`` and return what it printed."""
    script = f'cd "$0" && . tools/environment && {command}'
    bash = ["bash", "-euo", "pipefail", "-c", script, str(CHECKOUT)]
    return processes.run(bash, timeout_s=_APT_TIMEOUT_S)


def volumes_reconnect(libvirt: str) -> bool:
    """Return whether guests take up a lost connection to a volume, by the version of libvirt."""
    return tuple(int(part) for part in libvirt.split(".")[:2]) >= LIBVIRT_MIN


def environment_key() -> str:
    """Return 16 hex digits that differ where the installed environment may differ."""
    digest = hashlib.sha256(CONSTRAINTS.read_bytes())
    digest.update(_LAYOUT)
    digest.update(sys.version.encode())
    digest.update(libvirt_version().encode())
    return digest.hexdigest()[:16]


def libvirt_version() -> str:
    """Return the version of the installed libvirt, whose binding must be of the same."""
    return processes.run(["pkg-config", "--modversion", "libvirt"]).strip()


def install_environment(directory: OneBoxDirectory) -> bool:
    """Make the virtual environment, unless it is there as wanted; return whether it was made.

    :raises ToolFailedError: when pip fails.
    """
    stamp = directory.venv / "onebox-environment"
    key = environment_key()
    if stamp.is_file() and stamp.read_text() == key:
        return False
    # It may be a link to that of another one-box.
    venv = directory.venv.resolve()
    shutil.rmtree(venv, ignore_errors=True)
    processes.run([sys.executable, "-m", "venv", str(venv)], timeout_s=120.0)
    python = _interpreter(directory)
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile"]
    # Everything is named with its version: nothing is left to resolve.
    install = [*pip, "--no-deps", "-r", str(CONSTRAINTS)]
    processes.run([*install, f"libvirt-python=={libvirt_version()}"], timeout_s=_PIP_TIMEOUT_S)
    # Two processes at once; and programs of several hosts start at the same time later.
    compile_all = [python, "-m", "compileall", "-q", "-j", "0", str(venv / "lib")]
    with contextlib.suppress(exception.ToolFailedError):  # templates that are no Python
        processes.run(compile_all, timeout_s=_PIP_TIMEOUT_S)
    stamp.write_text(key)
    return True


def _interpreter(directory: OneBoxDirectory) -> str:
    """Return the Python that installs into the environment.

    pip writes its path into the scripts. Other one-boxes reach the same environment by links, which
    go with them, so it is the path behind the link.
    """
    return str(directory.venv.resolve() / "bin" / "python")


def install_acstor(directory: OneBoxDirectory, wheel: pathlib.Path | None = None) -> None:
    """Install ACStor into the environment.

    Without a wheel the checkout itself, so that a change takes effect when a service restarts;
    the extension module is the one that the checkout has been built with.

    :raises ToolFailedError: when pip fails.
    """
    with tempfile.TemporaryDirectory() as folder, _pip_lock(directory):
        _install_requirements(directory)
        chosen = wheel
        if chosen is None:
            # Several one-boxes may share an environment.
            search_path = directory.venv.resolve() / "checkout"
            search_path.mkdir(exist_ok=True)
            link = search_path / "acstor"
            if link.is_symlink() and link.readlink() != CHECKOUT / "acstor":
                link.unlink()
            if not link.is_symlink():
                link.symlink_to(CHECKOUT / "acstor")
            chosen = checkout_wheel(pathlib.Path(folder), search_path)
        stamp = directory.venv / "acstor-wheel"
        key = hashlib.sha256(chosen.read_bytes()).hexdigest()
        if stamp.is_file() and stamp.read_text() == key:
            return
        install = [
            _interpreter(directory), "-m", "pip", "install", "-q", "--no-deps", "--no-index",
            "--disable-pip-version-check", "--force-reinstall", str(chosen),
        ]  # fmt: skip
        processes.run(install, timeout_s=_PIP_TIMEOUT_S)
        stamp.write_text(key)


def _install_requirements(directory: OneBoxDirectory) -> None:
    """Install what ACStor requires; nothing where the constraints name all of it already."""
    requirements = CHECKOUT / "requirements.txt"
    stamp = directory.venv / "acstor-requirements"
    key = hashlib.sha256(requirements.read_bytes()).hexdigest()
    if stamp.is_file() and stamp.read_text() == key:
        return
    install = [
        _interpreter(directory), "-m", "pip", "install", "-q", "--disable-pip-version-check",
        "-c", str(CONSTRAINTS), "-r", str(requirements),
    ]  # fmt: skip
    processes.run(install, timeout_s=_PIP_TIMEOUT_S)
    stamp.write_text(key)


@contextlib.contextmanager
def _pip_lock(directory: OneBoxDirectory) -> Iterator[None]:
    descriptor = os.open(directory.venv / "pip.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def checkout_wheel(folder: pathlib.Path, search_path: pathlib.Path) -> pathlib.Path:
    """Write a wheel that leads to the checkout: its entry points, and where its modules are.

    An editable install would compile the extension module anew; here nothing is compiled.

    :param search_path: directory that holds the package, and nothing else.
    """
    version = importlib.metadata.version("acstor")
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(CHECKOUT / "setup.cfg")
    entry_points = []
    for group, lines in setup["entry_points"].items():
        entry_points += [f"[{group}]", *lines.strip().splitlines(), ""]
    metadata = f"acstor-{version}.dist-info"
    files = {
        "acstor-checkout.pth": f"{search_path}\n",
        f"{metadata}/METADATA": f"Metadata-Version: 2.1\nName: acstor\nVersion: {version}\n",
        f"{metadata}/WHEEL": "Wheel-Version: 1.0\nGenerator: onebox\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
        f"{metadata}/entry_points.txt": "\n".join(entry_points),
    }
    record = [f"{name},sha256={_record_hash(text)},{len(text)}" for name, text in files.items()]
    files[f"{metadata}/RECORD"] = "\n".join([*record, f"{metadata}/RECORD,,"]) + "\n"
    wheel = folder / f"acstor-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            # Without a time of its own, so that the same content gives the same file.
            archive.writestr(zipfile.ZipInfo(name), text)
    return wheel


def _record_hash(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
