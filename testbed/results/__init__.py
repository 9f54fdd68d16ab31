"""Results of record: small JSON files in ``bench/results`` that documentation is drawn from."""
