"""Values and deletes that follow the transactions of a database: others see them after the commit, or never.

- ``django_connections``, ``announced``: know the open transactions of Django, and those that a Flask app announces.
- ``transaction``, ``overlay``: a transaction, and what it has set and deleted in one cache, by savepoint.
- ``following``: the layer above the entries, which ``in_transaction`` answers while a transaction is open.
- ``followed_cache``: what happens at the ends of transactions.
"""
