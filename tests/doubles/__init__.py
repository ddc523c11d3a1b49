"""Stand-ins for what tests cannot have: named as such, and no more than tests need."""
