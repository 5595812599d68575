"""A real Chromium, driven over chromedriver's own HTTP (W3C WebDriver): no library between."""
