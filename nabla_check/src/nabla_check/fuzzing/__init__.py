"""Campaigns over drawn cases, exact shrinking, and properties that users state."""
