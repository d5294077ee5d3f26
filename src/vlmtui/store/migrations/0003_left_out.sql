-- Whether the attachments of a user's turn are left out of the prompts of later turns.

ALTER TABLE turns ADD COLUMN left_out INTEGER NOT NULL DEFAULT 0;
