"""What a fleet of workers comes to: small fixes that are measured, and a simulation that they feed.

``python -m tests.campaigns.fleet_simulation measure|predict|run|scale``
(docs/evaluation/fleet.md has the figures).
"""
