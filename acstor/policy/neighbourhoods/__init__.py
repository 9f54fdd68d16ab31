"""Orders of hints, one file each; entry points of ``acstor.policy.neighbourhoods``."""
