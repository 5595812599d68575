"""Thumbnails with a caption."""

from PIL import Image, ImageDraw


def thumbnail(image, caption):
    small = image.resize((64, 64), Image.ANTIALIAS)
    draw = ImageDraw.Draw(small)
    left = (small.width - draw.textlength(caption)) // 2
    draw.text((left, 50), caption, fill="white")
    return small
