"""Options that a one-box was made with; kept with it for later commands."""

import dataclasses
import json
from typing import Self

from testbed import exception
from testbed.onebox import network
from testbed.onebox.configuration.acstor import Origin
from testbed.onebox.configuration.writer import Configuration, Override
from testbed.onebox.directory import OneBoxDirectory


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of a one-box."""

    compute_hosts: int = 2
    with_acstor: bool = True
    #: Whether data planes authenticate each other.
    tls: bool = False
    origin: Origin = Origin.POSIX
    #: Options over the ones that every one-box has.
    overrides: tuple[Override, ...] = ()

    @property
    def compute_names(self) -> list[str]:
        """Return the names of the compute hosts."""
        return network.compute_names(self.compute_hosts)

    @property
    def with_ceph(self) -> bool:
        """Return whether a Ceph runs on the controller."""
        return self.origin is Origin.CEPH

    def with_origin(self, origin: Origin, directory: OneBoxDirectory) -> Self:
        """Return the settings with another origin, which only a one-box that is not made yet takes.

        :raises TestbedError: when the one-box has another one: what is in it would be lost.
        """
        if directory.settings.exists() and origin is not self.origin:
            raise exception.TestbedError(
                f"the one-box in {directory.path} has its origin in {self.origin}",
                hint="take it down first, or choose another --directory",
            )
        return dataclasses.replace(self, origin=origin)

    def override(self, file: str, configuration: Configuration) -> Configuration:
        """Return a configuration with the overrides of its file put in."""
        result = {group: dict(options) for group, options in configuration.items()}
        for override in self.overrides:
            if override.file == file:
                result.setdefault(override.group, {})[override.option] = override.value
        return result

    def with_overrides(self, overrides: list[Override]) -> Self:
        """Return the settings with more overrides; the newest of an option wins."""
        merged = {(o.file, o.group, o.option): o for o in (*self.overrides, *overrides)}
        return dataclasses.replace(self, overrides=tuple(merged.values()))

    def save(self, directory: OneBoxDirectory) -> None:
        """Keep the settings."""
        directory.settings.write_text(json.dumps(dataclasses.asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, directory: OneBoxDirectory) -> Self:
        """Return the kept settings.

        :raises TestbedError: when there are none, thus no one-box.
        """
        try:
            kept = json.loads(directory.settings.read_text())
        except FileNotFoundError as error:
            raise exception.TestbedError(
                f"there is no one-box in {directory.path}", hint="tools/onebox up makes one"
            ) from error
        overrides = tuple(Override(**entry) for entry in kept.pop("overrides"))
        origin = Origin(kept.pop("origin", Origin.POSIX))
        return cls(overrides=overrides, origin=origin, **kept)
