"""What a path holds, and whether it is intact; nothing in it is ever loaded."""
