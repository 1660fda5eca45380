"""What a person looks at, as text for a terminal."""
