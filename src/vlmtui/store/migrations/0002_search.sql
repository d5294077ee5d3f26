-- Full-text search. The indexes hold no copy of the texts. An answer is indexed when it ends, not at every append.

CREATE VIEW ended_turns AS SELECT id, text FROM turns WHERE state <> 'running';

CREATE VIRTUAL TABLE turns_search USING fts5 (
    text, content = 'ended_turns', content_rowid = 'id', tokenize = "unicode61 remove_diacritics 2"
);
CREATE VIRTUAL TABLE titles_search USING fts5 (
    title, content = 'conversations', content_rowid = 'number', tokenize = "unicode61 remove_diacritics 2"
);
INSERT INTO turns_search (turns_search) VALUES ('rebuild');
INSERT INTO titles_search (titles_search) VALUES ('rebuild');

CREATE TRIGGER turns_search_insert AFTER INSERT ON turns WHEN new.state <> 'running' BEGIN
    INSERT INTO turns_search (rowid, text) VALUES (new.id, new.text);
END;
CREATE TRIGGER turns_search_delete AFTER DELETE ON turns WHEN old.state <> 'running' BEGIN
    INSERT INTO turns_search (turns_search, rowid, text) VALUES ('delete', old.id, old.text);
END;
CREATE TRIGGER turns_search_update AFTER UPDATE OF text, state ON turns BEGIN
    INSERT INTO turns_search (turns_search, rowid, text)
        SELECT 'delete', old.id, old.text WHERE old.state <> 'running';
    INSERT INTO turns_search (rowid, text) SELECT new.id, new.text WHERE new.state <> 'running';
END;

CREATE TRIGGER titles_search_insert AFTER INSERT ON conversations BEGIN
    INSERT INTO titles_search (rowid, title) VALUES (new.number, new.title);
END;
CREATE TRIGGER titles_search_delete AFTER DELETE ON conversations BEGIN
    INSERT INTO titles_search (titles_search, rowid, title) VALUES ('delete', old.number, old.title);
END;
CREATE TRIGGER titles_search_update AFTER UPDATE OF title ON conversations BEGIN
    INSERT INTO titles_search (titles_search, rowid, title) VALUES ('delete', old.number, old.title);
    INSERT INTO titles_search (rowid, title) VALUES (new.number, new.title);
END;
