"""Weight policies, one file each; entry points of the namespace ``acstor.policy.weights``."""
