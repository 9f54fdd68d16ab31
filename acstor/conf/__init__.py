"""Configuration options, one file per group.

Each group's module has ``GROUP`` (its name), ``OPTIONS`` (its options) and ``register_opts(conf)``.
Importing a module registers nothing and reads nothing; :func:`acstor.conf.loading.load` does.
"""
