"""The interface document, made from the catalogue and the texts in `text/`.

`document` renders it as Markdown, and `page` as one HTML page. The page is written beside a report,
so that the report's links work wherever the suite runs.
"""
