"""Nova in memory, as flows see it."""

import dataclasses

from acstor.versions.services.compute import Server


class MemoryCompute:
    """Servers that tests put here."""

    def __init__(self) -> None:
        self.servers: dict[str, Server] = {}

    def add(self, server_id: str, project: str, host: str | None = "h1", **fields: str) -> None:
        """Put a server on a host."""
        self.servers[server_id] = Server(
            id=server_id,
            project=project,
            name="a server",
            status=fields.get("status", "ACTIVE"),
            host=host,
            image=fields.get("image"),
            task_state=None,
            metadata={},
            flavor_specs={},
        )

    def change(self, server_id: str, **fields: object) -> None:
        """Change a server."""
        self.servers[server_id] = dataclasses.replace(
            self.servers[server_id],
            **fields,  # type: ignore[arg-type]
        )

    def find_server(self, server_id: str) -> Server | None:
        return self.servers.get(server_id)
