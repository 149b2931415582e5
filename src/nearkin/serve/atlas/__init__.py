"""Atlas: a map of an index on which every point's exact neighbors are known, right ones and wrong ones, and where to look first.

`census.take` reads what an index knows of its points, `draw.draw` makes the `Atlas` of them, `folder.write_page` a folder that opens
from disk. The page itself is built from `web/` (`make web`) and lies in `page/`.
"""
