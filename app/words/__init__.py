"""Every word that people read on the page."""
