"""Tables of the pages in docs/, in Markdown, from the records."""
