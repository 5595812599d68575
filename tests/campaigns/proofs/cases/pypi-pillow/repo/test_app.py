import unittest

from app import thumbnail
from PIL import Image


class ThumbnailTest(unittest.TestCase):
    def test_a_thumbnail_is_small_and_has_its_caption(self):
        made = thumbnail(Image.new("RGB", (200, 100)), "cat")
        self.assertEqual(made.size, (64, 64))
        self.assertIsNotNone(made.getbbox())
