"""Index: a collection of embedded points that can be searched, on disk or in Milvus, behind one contract."""
