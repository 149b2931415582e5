"""The documents' tables, run again and set beside what is printed."""
