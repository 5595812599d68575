"""The times of the events in a SQLite store, for ``since.last_before``."""

import sqlite3

from fallback_audit.stores.since import PROBE_ROWS


class SqliteDates:
    """``Dates`` of one store, read from the headers: no payload, and no index over times."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def newest(self) -> int:
        """The number of the last event; 0 where there is none."""
        return self._number("SELECT max(seq) FROM audit_header") or 0

    def reached(self, seq: int, moment: str) -> bool:
        """Is one of the PROBE_ROWS events from ``seq`` on dated ``moment`` or later?"""
        sql = (
            "SELECT count(*) FROM (SELECT recorded_at FROM audit_header WHERE seq >= ?"
            " ORDER BY seq LIMIT ?) WHERE coalesce(recorded_at >= ?, TRUE)"
        )
        return bool(self._number(sql, seq, PROBE_ROWS, moment))

    def first(self, after: int, moment: str) -> int | None:
        """The first event behind number ``after`` that is dated ``moment`` or later."""
        sql = (
            "SELECT min(seq) FROM (SELECT seq FROM audit_header WHERE seq > ?"
            " AND coalesce(recorded_at >= ?, TRUE) ORDER BY seq LIMIT 1)"
        )
        return self._number(sql, after, moment)

    def _number(self, sql: str, *parameters: object) -> int | None:
        row: tuple[int | None] = self._connection.execute(sql, parameters).fetchone()
        return row[0]
