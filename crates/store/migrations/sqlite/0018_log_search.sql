-- An index of the pieces of three characters in the text of logs, for searching.

-- The row's place in the index: 20 bits of the end of the project's id, 19 bits of the hour from 2023 on,
-- 24 bits that count within the hour. So rows of one project are together, in the order of their hours.
-- None: the row is not in the index yet. -1: its hour has no place left, and no search finds it.
ALTER TABLE logs ADD COLUMN search_key INTEGER;

-- Nothing but the index itself: the text is in the table of logs.
CREATE VIRTUAL TABLE logs_search USING fts5 (
    text, content = '', contentless_delete = 1, detail = none, tokenize = 'trigram case_sensitive 1'
);

UPDATE logs SET search_key = CASE WHEN placed.slot < 16777216 THEN placed.first + placed.slot ELSE -1 END
FROM (
    SELECT id, first, row_number() OVER (PARTITION BY first ORDER BY created_at, id) - 1 AS slot FROM (
        SELECT id, created_at,
            ((instr('0123456789abcdefghjkmnpqrstvwxyz', substr(project_id, -1, 1)) & 31) << 58)
            | ((instr('0123456789abcdefghjkmnpqrstvwxyz', substr(project_id, -2, 1)) & 31) << 53)
            | ((instr('0123456789abcdefghjkmnpqrstvwxyz', substr(project_id, -3, 1)) & 31) << 48)
            | ((instr('0123456789abcdefghjkmnpqrstvwxyz', substr(project_id, -4, 1)) & 31) << 43)
            | (max(0, min(524287, created_at / 3600000000 - 464592)) << 24) AS first
        FROM logs
    )
) AS placed WHERE logs.id = placed.id;
CREATE INDEX logs_search_key ON logs (search_key);
CREATE INDEX logs_unindexed ON logs (project_id, created_at, id) WHERE search_key IS NULL;
INSERT INTO logs_search (rowid, text)
    SELECT search_key, search FROM logs WHERE search_key >= 0 ORDER BY search_key;

CREATE TRIGGER logs_search_delete AFTER DELETE ON logs WHEN OLD.search_key >= 0 BEGIN
    DELETE FROM logs_search WHERE rowid = OLD.search_key;
END;
