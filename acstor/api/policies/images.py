"""Rules of images."""

from acstor.api.policies.base import READER, rule

RULES = (
    rule("images:list", READER, "List images, and where they are cached.", "GET /v1/images"),
    rule("images:show", READER, "Show an image.", "GET /v1/images/{image_id}"),
)
