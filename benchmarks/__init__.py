"""wheelcache beside its peers: ``python -m benchmarks`` measures everything in one run.

Only ratios between contenders of one run mean anything, and those only because their rounds take turns: a machine that
is slow for a second is slow for all of them.
"""
