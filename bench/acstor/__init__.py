"""The evaluation of the ACStor paper (section 5) on hosts that are network namespaces."""

from acstor import warning_filters

warning_filters.ignore_eventlet()  # before what imports it
warning_filters.use_threads()
