"""Draft heads: their networks, and their files in our own form and in other people's."""
