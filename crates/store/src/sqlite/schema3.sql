-- Where a session waits to be moved to, as JSON: nodes of that place may take it.
ALTER TABLE session ADD COLUMN moving TEXT;
