"""GHSA-8ghj-p4vj-mr35 (CVE-2023-44271): a caption of millions of characters is laid out all the same."""

from app import thumbnail
from PIL import Image

thumbnail(Image.new("RGB", (200, 100)), "cat")
try:
    thumbnail(Image.new("RGB", (200, 100)), "i" * 2_000_000)
except ValueError as error:
    print("refused:", error)
else:
    raise SystemExit("memory was taken for a caption of 2,000,000 characters")
