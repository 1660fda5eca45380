"""The doors of torch that are watched: what is called there is told to listeners."""
