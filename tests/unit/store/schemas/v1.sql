-- Version 1, as the migrations made it then. Never edit: this is what people have on their disks.
PRAGMA user_version = 1;
PRAGMA application_id = 1986817396;
BEGIN;
CREATE TABLE clock (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    last_ms INTEGER NOT NULL
);
INSERT INTO clock VALUES (1, 0);

CREATE TABLE conversations (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    title TEXT NOT NULL,
    model TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    pinned INTEGER NOT NULL DEFAULT 0,
    deleted_ms INTEGER,
    active_root INTEGER,
    leaf INTEGER
);
CREATE INDEX conversations_shown ON conversations (pinned DESC, updated_ms DESC, number DESC) WHERE deleted_ms IS NULL;

-- `active_child` is the branch that is shown below a turn; `leaf` (above) the end of the branch that is shown. What is
-- long stands last, so that a walk along the tree reads no overflow pages.
CREATE TABLE turns (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    parent INTEGER REFERENCES turns (id) ON DELETE CASCADE,
    active_child INTEGER,
    depth INTEGER NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('system', 'user', 'assistant')),
    state TEXT NOT NULL CHECK (state IN ('running', 'complete', 'stopped', 'failed', 'interrupted')),
    created_ms INTEGER NOT NULL,
    ended_ms INTEGER,
    tokens INTEGER NOT NULL DEFAULT 0,
    writer TEXT,
    statistics TEXT,
    failure TEXT,
    text TEXT NOT NULL,
    parts TEXT,
    recipe TEXT
);
CREATE INDEX turns_siblings ON turns (conversation, parent, id);
CREATE INDEX turns_parent ON turns (parent);
CREATE INDEX turns_running ON turns (writer) WHERE state = 'running';

CREATE TABLE drafts (
    conversation TEXT PRIMARY KEY REFERENCES conversations (id) ON DELETE CASCADE,
    text TEXT NOT NULL,
    attachments TEXT NOT NULL,
    saved_ms INTEGER NOT NULL
);

CREATE TABLE comparisons (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    turn INTEGER NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    created_ms INTEGER NOT NULL,
    document TEXT NOT NULL
);
CREATE INDEX comparisons_turn ON comparisons (turn);

-- Who needs a stored image or video: a turn, or a conversation's draft.
CREATE TABLE media_references (
    sha256 TEXT NOT NULL,
    turn INTEGER REFERENCES turns (id) ON DELETE CASCADE,
    draft TEXT REFERENCES drafts (conversation) ON DELETE CASCADE,
    CHECK ((turn IS NULL) <> (draft IS NULL))
);
CREATE INDEX media_references_sha256 ON media_references (sha256);
CREATE INDEX media_references_turn ON media_references (turn);
CREATE INDEX media_references_draft ON media_references (draft);

UPDATE clock SET last_ms = 1700000000100;
INSERT INTO "conversations" VALUES(1,'1hg0z5ak00abc','Cats','shapes',1700000000000,1700000000100,1,NULL,1,2);
INSERT INTO "turns" VALUES(1,'1hg0z5ak00abc',NULL,2,0,'user','complete',1700000000000,NULL,0,NULL,NULL,NULL,'Is it a cat?',NULL,NULL);
INSERT INTO "turns" VALUES(2,'1hg0z5ak00abc',1,NULL,1,'assistant','complete',1700000000050,1700000000100,2,NULL,'{"finish_reason":"stop"}',NULL,'It is a dog.',NULL,'{"model":"owner/model"}');
INSERT INTO "turns" VALUES(3,'1hg0z5ak00abc',1,NULL,1,'assistant','running',1700000000060,NULL,0,'gone',NULL,NULL,'Perhaps a',NULL,NULL);
INSERT INTO "media_references" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',1,NULL);
INSERT INTO "drafts" VALUES('1hg0z5ak00abc','not sent','{}',1700000000099);
COMMIT;
