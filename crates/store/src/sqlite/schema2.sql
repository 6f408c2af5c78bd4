-- Several nodes: what a node serves, what a location needs, and hand-overs to a named successor.
ALTER TABLE session ADD COLUMN handed_until INTEGER;
ALTER TABLE session ADD COLUMN quiet_until INTEGER;
ALTER TABLE session ADD COLUMN requires TEXT NOT NULL DEFAULT '';
ALTER TABLE node ADD COLUMN labels TEXT NOT NULL DEFAULT '';
ALTER TABLE node ADD COLUMN roots TEXT NOT NULL DEFAULT '';
ALTER TABLE node ADD COLUMN resigned INTEGER NOT NULL DEFAULT 0;
