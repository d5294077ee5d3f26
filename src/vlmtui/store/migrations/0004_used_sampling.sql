-- Whether an answer was made by the chat template or by a raw prompt, and every value that the engine sampled it with.

ALTER TABLE turns ADD COLUMN mode TEXT NOT NULL DEFAULT 'chat';
ALTER TABLE turns ADD COLUMN used TEXT;
UPDATE turns SET mode = 'raw' WHERE CASE WHEN json_valid(recipe) THEN json_extract(recipe, '$.mode') = 'raw' ELSE 0 END;
