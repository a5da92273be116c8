"""The dashboard: pages that show runs, sweeps and studies in a browser, live or as files.

`source` finds runs; `runs_data`, `series_data` and `studies_data` say what is shown of them as
plain data; `web_server` and `static_export` hand it to the pages in `page/`. `html_report` and
`appendix` are what is handed to others: one page without scripts, and tables for a paper.
"""
