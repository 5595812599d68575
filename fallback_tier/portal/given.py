"""What pages are given: the board, read up to now."""

from typing import Annotated

from fastapi import Depends, Request

from fallback_tier.observing.following import Position
from fallback_tier.portal.board import Board


class Read:
    """The board, and how far it has read: ``to`` this event; ``behind`` events are missing from what it
    tells."""

    def __init__(self, board: Board, position: Position) -> None:
        self.board = board
        self.to = position.read
        self.behind = position.behind
        self.problem = position.problem


def _read(request: Request) -> Read:
    board: Board = request.app.state.board
    return Read(board, board.catch_up())


TheBoard = Annotated[Read, Depends(_read)]
