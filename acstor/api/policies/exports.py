"""Rules of exports."""

from acstor.api.policies.base import MEMBER, rule

RULES = (rule("exports:create", MEMBER, "Make an image of a version.", "POST /v1/exports"),)
