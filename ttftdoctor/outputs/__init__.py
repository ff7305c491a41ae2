"""A diagnosis for other programs: tables for a spreadsheet, metrics for a monitor."""
