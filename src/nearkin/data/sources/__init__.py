"""Where data come from: folders, tables, arrays, and named sets in the layouts their authors publish."""
