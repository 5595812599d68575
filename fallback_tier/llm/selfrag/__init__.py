"""Self-RAG (Asai et al. 2023, arXiv 2310.11511) over edits: the first draft of an attempt by search.

A segment is one search/replace edit. ``search`` walks, ``beam`` decides what is kept, ``score`` weighs,
``fetching`` asks whether examples are needed, ``trying`` turns answers into continuations, ``critics``
has them judged, ``affordable`` looks at what is left to spend. No model was trained for this: the
reflections that the paper's model emits as tokens are asked of a critic."""

from fallback_tier.llm.selfrag.search import SelfRag

__all__ = ["SelfRag"]
