"""Users of the services beside ACStor on a host, and the groups that they are in."""

import os
import pwd

NOVA_USERS = ("nova",)
CINDER_USERS = ("cinder",)
QEMU_USERS = ("libvirt-qemu", "qemu")
"""Users of the services as distributions call them; those that a host does not have are skipped."""


def present(users: tuple[str, ...]) -> list[str]:
    """Return those of ``users`` that this host has."""
    return [user for user in users if _find(user) is not None]


def is_member(user: str, group: int) -> bool:
    """Return whether a user is in a group, by its number, as the first of his groups or another."""
    found = _find(user)
    return found is not None and group in os.getgrouplist(user, found.pw_gid)


def numbers(user: str) -> set[int]:
    """Return the number of a user, nothing where this host has none of the name."""
    found = _find(user)
    return set() if found is None else {found.pw_uid}


def _find(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None
