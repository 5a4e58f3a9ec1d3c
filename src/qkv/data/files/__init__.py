"""People's own files: bytes to text, text to rows that know their line, rows to pairs."""
