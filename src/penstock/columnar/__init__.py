"""Topics as Arrow: a bulk client that reads record batches into columns and writes columns as record batches."""
