"""What writes our own documentation, run by ``make docs``.

- ``python -m tools.docs results/*.jsonl --pages docs``: a page for each file of results, and the
  generated blocks of all other pages;
- ``python -m tools.docs.times results/*.jsonl``: the times that come with ``engram.app.studies``;
- ``python -m tools.docs.reliability``: the counts in docs/reliability.md.
"""
