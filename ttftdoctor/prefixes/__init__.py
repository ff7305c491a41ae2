"""Where reusable work is lost, rung by rung: what prompts share, and what was kept of it."""
