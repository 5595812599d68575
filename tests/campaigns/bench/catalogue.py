"""Every row, in the order of the goals. A new module of rows is one more line here."""

from tests.campaigns.bench import (
    rows_audit,
    rows_fix,
    rows_isolation,
    rows_llm,
    rows_loop,
    rows_plan,
    rows_portal,
    rows_prompt,
    rows_recipe,
    rows_retrieval,
    rows_sandbox,
    rows_startup,
)
from tests.campaigns.bench.row import Row

ROWS: tuple[Row, ...] = (
    *rows_startup.ROWS,
    *rows_recipe.ROWS,
    *rows_plan.ROWS,
    *rows_llm.ROWS,
    *rows_prompt.ROWS,
    *rows_isolation.ROWS,
    *rows_loop.ROWS,
    *rows_fix.ROWS,
    *rows_audit.ROWS,
    *rows_retrieval.ROWS,
    *rows_sandbox.ROWS,
    *rows_portal.ROWS,
)
