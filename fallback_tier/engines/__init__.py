"""Engines that run a fix's steps: each is an extra, and no other part depends on one (ADR-0086)."""
