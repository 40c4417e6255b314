"""The report of an audit: one page of HTML that needs nothing beside itself."""

from cfair.report.page import check_report, write_report

__all__ = ["check_report", "write_report"]
