"""The page: its components, tabs, endpoints, and the data for the browser."""
