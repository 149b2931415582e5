"""Readers of folders, tables, arrays, shards and known sets in the layouts that their authors publish."""
