"""The HTML pages: one file each, offline, with charts; ``shell`` makes a page of parts."""
