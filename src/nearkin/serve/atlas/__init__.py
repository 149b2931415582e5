"""The explorer's data: a 2D map of an index, the exact neighbors of every point, which of them are right, and lists of points to review.

`table.read_table` reads the points of an index, `atlas.build_atlas` computes their `Atlas`, and `export.write_page` writes a folder that
opens from disk. The page itself is built from `web/` (`make web`) into `page/`.
"""
