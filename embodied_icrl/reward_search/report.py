"""The report of a search: one HTML page that needs no network and no other files."""

from __future__ import annotations

from pathlib import Path

from embodied_icrl.reward_search.report_data import ReportData

__all__ = ["ReportData", "write_report"]


def write_report(report: ReportData, path: str | Path) -> Path:
    """Write the page, whole or not at all.

    Every text in it is escaped, and the page forbids the browser to load anything and to run any
    script but its own. Videos lie in the page itself while they are small; larger ones are linked
    by their path relative to the page.

    Args:
        report: what to show; it may be that of a search that still runs.
        path: of the HTML file; its folder is created.

    Raises:
        RunError: the file can't be written.
    """
    raise NotImplementedError
