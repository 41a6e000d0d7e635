"""What the measurements say, for people: tables for the terminal and one page for the browser."""
