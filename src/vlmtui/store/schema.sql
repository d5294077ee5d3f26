-- The version, which changes with the schema, and the mark of a database of vlmtui (`vlmt`).
PRAGMA user_version = 9;
PRAGMA application_id = 0x766C6D74;

-- A conversation is a tree of turns. Times are milliseconds since 1970, UTC, and never run backwards (table `clock`).

CREATE TABLE clock (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    last_ms INTEGER NOT NULL
) STRICT;
INSERT INTO clock VALUES (1, 0);

CREATE TABLE conversations (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    title TEXT NOT NULL,
    model TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    pinned INTEGER NOT NULL DEFAULT 0,
    imported INTEGER NOT NULL DEFAULT 0,
    deleted_ms INTEGER,
    active_root INTEGER,
    leaf INTEGER
) STRICT;
CREATE INDEX conversations_shown ON conversations (pinned DESC, updated_ms DESC, number DESC) WHERE deleted_ms IS NULL;

-- `active_child` is the branch that is shown below a turn; `leaf` (above) the end of the branch that is shown. `used` are
-- the values that the engine sampled an answer with; `writer` is the process that writes it. Long columns stand last, so
-- that a walk along the tree reads no overflow pages.
CREATE TABLE turns (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    parent INTEGER REFERENCES turns (id) ON DELETE CASCADE,
    active_child INTEGER,
    depth INTEGER NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('system', 'user', 'assistant')),
    state TEXT NOT NULL CHECK (state IN ('running', 'complete', 'stopped', 'failed', 'interrupted')),
    mode TEXT NOT NULL DEFAULT 'chat',
    created_ms INTEGER NOT NULL,
    ended_ms INTEGER,
    tokens INTEGER NOT NULL DEFAULT 0,
    left_out INTEGER NOT NULL DEFAULT 0,
    writer TEXT,
    statistics TEXT,
    failure TEXT,
    used TEXT,
    text TEXT NOT NULL,
    parts TEXT,
    recipe TEXT
) STRICT;
CREATE INDEX turns_siblings ON turns (conversation, parent, id);
CREATE INDEX turns_parent ON turns (parent);
CREATE INDEX turns_running ON turns (writer) WHERE state = 'running';

CREATE TABLE drafts (
    conversation TEXT PRIMARY KEY REFERENCES conversations (id) ON DELETE CASCADE,
    text TEXT NOT NULL,
    attachments TEXT NOT NULL,
    saved_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE comparisons (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    turn INTEGER NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    created_ms INTEGER NOT NULL,
    document TEXT NOT NULL
) STRICT;
CREATE INDEX comparisons_turn ON comparisons (turn);

-- The turns and drafts that need a stored file.
CREATE TABLE media_references (
    sha256 TEXT NOT NULL,
    turn INTEGER REFERENCES turns (id) ON DELETE CASCADE,
    draft TEXT REFERENCES drafts (conversation) ON DELETE CASCADE,
    CHECK ((turn IS NULL) <> (draft IS NULL))
) STRICT;
CREATE INDEX media_references_sha256 ON media_references (sha256);
CREATE INDEX media_references_turn ON media_references (turn);
CREATE INDEX media_references_draft ON media_references (draft);

-- Full-text search. The indexes hold no copy of the texts. An answer is indexed when it ends, not at every append.

CREATE VIEW ended_turns AS SELECT id, text FROM turns WHERE state <> 'running';

CREATE VIRTUAL TABLE turns_search USING fts5 (
    text, content = 'ended_turns', content_rowid = 'id', tokenize = "unicode61 remove_diacritics 2"
);
CREATE VIRTUAL TABLE titles_search USING fts5 (
    title, content = 'conversations', content_rowid = 'number', tokenize = "unicode61 remove_diacritics 2"
);

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
