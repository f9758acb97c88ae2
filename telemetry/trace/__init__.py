"""In-kernel stage traces: what the markers record, how it is decoded, summed up and exported."""
