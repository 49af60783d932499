"""asv's pages of this project as one folder that needs no network.

``python -m benchmarks.dashboard build`` adds nothing to what asv measures: it runs asv where the
commit has no results, labels the results (`results`), adds reports of devices (`devices`), lets asv
publish, puts what the pages load beside them (`assets`) and writes a first page (`landing`).
"""
