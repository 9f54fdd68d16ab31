"""All services that flows use."""

import dataclasses

from acstor.versions.services.captures import HostCaptures
from acstor.versions.services.compute import Compute


@dataclasses.dataclass(frozen=True, slots=True)
class Services:
    """Services of one worker. Each has a double in memory, and fails as it is told in tests."""

    captures: HostCaptures
    compute: Compute
