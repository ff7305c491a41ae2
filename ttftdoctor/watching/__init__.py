"""Following logs that are still being written: what ``ttftdoctor watch`` is made of."""
