"""Rows of files, partitions and differences: words, and links to who may follow them."""

import dataclasses
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any

from django import http, urls
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from acstor_dashboard import authorization, wording
from acstor_dashboard.versions.tables import PANEL
from acstorclient.v1.files import FileChange, FileEntry, Partition, printable

CRUMBS_MAX = 32
"""Most directories of the way to a place, the root and the last ones."""
KINDS: Mapping[str, object] = {
    "file": gettext_lazy("File"),
    "directory": gettext_lazy("Directory"),
    "link": gettext_lazy("Symbolic link"),
    "special": gettext_lazy("Device, pipe or socket"),
}
"""Kinds of files."""
CHANGES: Mapping[str, object] = {
    "added": gettext_lazy("Added"),
    "removed": gettext_lazy("Removed"),
    "changed": gettext_lazy("Changed"),
}
"""Ways in which a path differs."""
FIELDS: Mapping[str, object] = {
    "kind": gettext_lazy("kind"),
    "mode": gettext_lazy("mode"),
    "uid": gettext_lazy("owner"),
    "gid": gettext_lazy("group"),
    "target": gettext_lazy("target of the link"),
    "size_bytes": gettext_lazy("size"),
    "modified_ns": gettext_lazy("time of the change"),
}
"""Fields of files that are compared."""
_NOT_SHOWN = gettext_lazy("Files of this file system are not shown.")
UNREADABLE: Mapping[str, object] = {
    "crypto_LUKS": gettext_lazy("It is encrypted (LUKS)."),
    "LVM2_member": gettext_lazy("Logical volumes (LVM) are not looked into."),
    "swap": gettext_lazy("It is swap space."),
    "unknown": gettext_lazy("It has no file system that is known."),
    "xfs": _NOT_SHOWN,
    "btrfs": _NOT_SHOWN,
    "ntfs": _NOT_SHOWN,
    "exfat": _NOT_SHOWN,
    "vfat": _NOT_SHOWN,
    "iso9660": _NOT_SHOWN,
}
"""Reasons for which a partition is not looked into, by its file system."""


@dataclasses.dataclass(frozen=True)
class Place:
    """Path in a version.

    :ivar partition: number; empty: the one that the API chooses.
    """

    version_id: str
    partition: str
    path: str

    @classmethod
    def of(cls, version_id: object, query: Mapping[str, Any]) -> "Place":
        """Return the place that a query names, unchecked: the API refuses what is none."""
        return cls(str(version_id), query.get("partition", ""), query.get("path", ""))

    def query(self) -> dict[str, str]:
        """Return it as a query of the API has it."""
        known = {"partition": self.partition, "path": self.path or "/"}
        return {name: value for name, value in known.items() if value}

    def url(self, page: str = "files", **more: str) -> str:
        """Return the URL of a page about it.

        :param page: name of the URL.
        :param more: of the query.
        """
        url = urls.reverse(f"{PANEL}:{page}", kwargs={"version": self.version_id})
        query = urllib.parse.urlencode({**self.query(), **more}, errors="replace")
        return f"{url}?{query}"

    def below(self, name: str) -> "Place":
        """Return the place of a file in this directory."""
        return dataclasses.replace(self, path=f"{self.path.rstrip('/')}/{name}")

    def parents(self) -> Iterator["Place"]:
        """Yield the directories that it is in, the root first, and itself."""
        found = dataclasses.replace(self, path="/")
        yield found
        for name in filter(None, self.path.split("/")):
            found = found.below(name)
            yield found

    @property
    def name(self) -> str:
        """Return the last part of the path; empty: it is the root."""
        return self.path.rstrip("/").rpartition("/")[2]


@dataclasses.dataclass(frozen=True)
class Rights:
    """Pages about files that a user may see."""

    can_list: bool
    can_read: bool
    can_archive: bool

    @classmethod
    def of(cls, request: http.HttpRequest) -> "Rights":
        """Return those of a request's user."""
        return cls(
            can_list=authorization.may(request, "versions:files"),
            can_read=authorization.may(request, "versions:file_content"),
            can_archive=authorization.may(request, "versions:file_archive"),
        )


def crumbs(place: Place) -> list[dict[str, str]]:
    """Return the way to a place: words and URL of each directory, the last one without URL."""
    way = list(place.parents())
    if len(way) > CRUMBS_MAX:
        way = [way[0], *way[1 - CRUMBS_MAX :]]
    found = [{"text": printable(each.name) or "/", "url": each.url()} for each in way]
    found[-1]["url"] = ""
    return found


def partition_row(partition: Partition, version_id: str) -> dict[str, str]:
    """Return a partition as the page shows it; its URL is empty where it has no files."""
    number = str(partition.number)
    text = _("Partition %s") % number if partition.number else _("Whole disk")
    place = Place(version_id, number, "/")
    reason = UNREADABLE.get(partition.file_system, printable(partition.reason or ""))
    return {
        "text": text,
        "url": place.url() if partition.is_readable else "",
        "name": printable(partition.name),
        "file_system": printable(partition.file_system),
        "label": printable(partition.label),
        "size": wording.size(partition.size_bytes),
        "reason": "" if partition.is_readable else str(reason),
    }


def file_row(entry: FileEntry, place: Place, rights: Rights) -> dict[str, str]:
    """Return a file as the page shows it, with what the user may do with it."""
    is_directory, is_file = entry.kind == "directory", entry.kind == "file"
    download = ""
    if is_file and rights.can_read:
        download = place.url("file_content")
    elif is_directory and rights.can_archive:
        download = place.url("file_archive")
    return {
        "name": printable(entry.name),
        "url": place.url() if is_directory else "",
        "target": printable(entry.target or ""),
        "kind": wording.word(KINDS, entry.kind),
        "size": wording.size(entry.size_bytes) if is_file else "",
        "changed": wording.moment(entry.modified_at),
        "mode": entry.mode,
        "owner": f"{entry.uid}:{entry.gid}",
        "download": download,
        "action": _("Download as Archive") if is_directory else _("Download"),
    }


def change_row(change: FileChange, now: Place, before: Place, rights: Rights) -> dict[str, str]:
    """Return a difference as the page shows it.

    :param now: any place in the version.
    :param before: any place in the one that it is compared with, which has what was removed.
    """
    owner = before if change.change == "removed" else now
    place = dataclasses.replace(owner, path=change.path)
    return {
        "path": printable(change.path),
        "url": place.url() if rights.can_list else "",
        "change": wording.word(CHANGES, change.change),
        "before": _size(change.before),
        "after": _size(change.after),
        "fields": ", ".join(wording.word(FIELDS, field) for field in change.fields),
    }


def _size(entry: FileEntry | None) -> str:
    return wording.size(entry.size_bytes) if entry is not None and entry.kind == "file" else ""
