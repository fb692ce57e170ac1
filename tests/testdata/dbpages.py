"""Rows and bytes of a SQLite database, table by table, as JSON. usage: dbpages.py FILE

Bytes are whole pages, from the virtual table dbstat. Where this SQLite has none they are those of the whole file, packed.
"""
import json
import os
import sqlite3
import sys
import tempfile

db = sqlite3.connect("file:%s?mode=ro" % sys.argv[1], uri=True, timeout=20)
rows = {t: db.execute("SELECT count(*) FROM %s" % t).fetchone()[0] for t in ("series", "points", "chunks")}
try:
    pages = dict(db.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name"))
except sqlite3.OperationalError:
    with tempfile.TemporaryDirectory() as d:
        db.execute("VACUUM INTO ?", (os.path.join(d, "packed"),))
        pages = {"points and all else": os.path.getsize(os.path.join(d, "packed"))}
json.dump({"rows": rows, "pages": pages}, sys.stdout)
