"""Fits what turns a head's log probabilities into chances: `weights` at random positions, `shares` along trees."""
