"""How programs import large packages: without what they never run. Nothing is imported by importing this."""
