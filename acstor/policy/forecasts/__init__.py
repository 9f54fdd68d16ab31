"""Forecasts of load, one file each; entry points of the namespace ``acstor.policy.forecasts``."""
