"""A figure in a log's last lines: how many tests did what."""

#: Part of a pattern: a whole number of at most nine digits. The lookarounds keep a search from trying a
#: longer run of digits from each of them, and ``int`` refuses one of over 4,300. No suite has so many
#: tests: a longer number is no figure.
FIGURE = r"(?<!\d)\d{1,9}(?!\d)"
