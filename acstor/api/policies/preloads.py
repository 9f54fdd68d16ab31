"""Rules of preloads."""

from acstor.api.policies.base import ADMINISTRATOR, rule

_ALL = "/v1/images/{image_id}/preloads"

RULES = (
    rule("preloads:list", ADMINISTRATOR, "List the preloads of an image.", f"GET {_ALL}"),
    rule("preloads:create", ADMINISTRATOR, "Bring an image to hosts.", f"POST {_ALL}"),
    rule("preloads:delete", ADMINISTRATOR, "Stop a preload.", f"DELETE {_ALL}/{{preload_id}}"),
)
