"""wheelcache compared with its peers: ``python -m benchmarks`` measures everything in one run.

Only ratios between contenders of the same run are meaningful. Their rounds take turns, so that a machine that is slow
for a second is slow for all of them.
"""
