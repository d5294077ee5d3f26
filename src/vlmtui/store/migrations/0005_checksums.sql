-- A checksum of every row, kept by vlmtui's own connections, so that content that changes below SQLite is noticed. `clock`
-- has the sum of all rows, since every transaction writes that page anyway, and the greatest ids that were given out.

ALTER TABLE conversations ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE drafts ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE comparisons ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE media_references ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE clock ADD COLUMN rows_sum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE clock ADD COLUMN last_conversation INTEGER NOT NULL DEFAULT 0;
ALTER TABLE clock ADD COLUMN last_turn INTEGER NOT NULL DEFAULT 0;
ALTER TABLE clock ADD COLUMN last_comparison INTEGER NOT NULL DEFAULT 0;
ALTER TABLE clock ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
