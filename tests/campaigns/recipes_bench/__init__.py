"""Every recipe case through the recipes, with the real clients, and an independent judge of the ends.

``make bench-recipes DATA=../shared/data``. The judge shares no code with what it judges: it reads
manifests, locks and advisories with readers of its own.
"""
