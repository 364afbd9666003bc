"""How records are written: envelopes with checksums, codecs, redaction."""
