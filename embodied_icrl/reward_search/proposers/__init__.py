"""Who writes the reward code: `terms` (no language model), `openai` (any server that speaks the
chat-completions protocol), `replay` (answers of an earlier search)."""
