"""Routes of the pages, one module per page or group of pages."""
